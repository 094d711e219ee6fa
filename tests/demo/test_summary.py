"""The closing lines."""

from replicarouter.demo.figures import Seen
from replicarouter.demo.summary import UserTotals, summary
from replicarouter.loadgen.report import Tally
from tests.demo.conftest import MakeReading


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
    lines = summary(seen, UserTotals.of(tally()), users=256, seconds=10.04).splitlines()
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
        "No request waited in the router: the engines ran up to 255 at once for 256 users.",
    ]


def test_missing_requests_are_not_hidden(reading: MakeReading) -> None:
    seen = Seen()
    seen.note(reading(streaming=10, received=15, finished={"ok": 3}))
    text = summary(seen, UserTotals.of(Tally()), users=10, seconds=1.0)
    assert "15 received = 3 finished + 10 in flight: +2 NOT ACCOUNTED FOR" in text
