"""The closing lines."""

from replicarouter.demo.figures import Seen
from replicarouter.demo.summary import UserTotals, summary
from replicarouter.loadgen.report import Tally
from tests.demo.conftest import MakeReading
from tests.diagnosis.pages import fleet


def tally() -> Tally:
    filled = Tally()
    filled.started, filled.answered, filled.cut = 1300, 1000, 1
    filled.failures.update({"status 503": 30, "connection lost": 13})
    filled.ttfts.extend([0.05] * 9 + [3.4] * 2)
    for _ in range(100):
        filled.gaps.observe(0.022)
    return filled


def test_totals_are_those_of_the_tally() -> None:
    totals = UserTotals.of(tally())
    assert (totals.started, totals.answered, totals.in_flight) == (1300, 1000, 256)
    assert totals.failures == {"status 503": 30, "connection lost": 13}
    assert (totals.ttft_p50, totals.ttft_p90) == (0.05, 3.4)


def test_summary_accounts_for_every_request(reading: MakeReading) -> None:
    seen = Seen()
    finished = {"ok": 1000, "no_replica": 44}
    seen.note(reading(streaming=256, running=255.0, received=1300, finished=finished))
    lines = summary(seen, UserTotals.of(tally()), seconds=10.04).splitlines()
    assert lines == [
        "after 10.0 s",
        (
            "  users    1,300 requests: 1,000 finished, 43 failed, 256 under way"
            " (failed: 13 connection lost, 30 status 503)"
        ),
        "  router   1,300 received = 1,044 finished + 256 in flight: all accounted for",
        "  TTFT     p50 50 ms, p90 3.40 s",
        "  ITL      p50 22 ms, p90 22 ms",
        "  peaks    255 running in the engines, 0 connecting, proxy_limited 0",
        "The router has told nothing.",
    ]


def limited(seconds: float) -> str:
    router = fleet(seconds)
    router.connector_limit, router.connector_waiting, router.held = 100, 156, 3.0
    for one in router.replicas:
        one.connecting, one.streaming = 19.5, 12.5
    return router.page()


def test_last_line_says_what_limited() -> None:
    seen = Seen()
    seen.pages.extend([(0.0, fleet(0).page()), (1.0, limited(1)), (2.0, limited(2))])
    last = summary(seen, UserTotals.of(tally()), seconds=3.0).splitlines()[-1]
    assert last.startswith("The router's connector limit holds requests back: running 100, connecting 156, ")
    assert last.endswith("set it to at least 512 (--connector-limit), or 0 for no limit.")


def test_last_line_of_a_free_run_names_the_engines() -> None:
    seen = Seen()
    seen.pages.extend((at, fleet(at).page()) for at in (0.0, 1.0, 2.0))
    last = summary(seen, UserTotals.of(tally()), seconds=3.0).splitlines()[-1]
    assert last.startswith("Nothing limits but the engines' own speed: 128 running on 8 replicas")


def test_missing_requests_are_not_hidden(reading: MakeReading) -> None:
    seen = Seen()
    seen.note(reading(streaming=10, received=15, finished={"ok": 3}))
    text = summary(seen, UserTotals.of(Tally()), seconds=1.0)
    assert "15 received = 3 finished + 10 in flight: +2 NOT ACCOUNTED FOR" in text
