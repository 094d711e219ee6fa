"""The display without a terminal."""

from io import StringIO

from replicarouter.demo.figures import Look, UserFigures
from replicarouter.demo.lines import PlainLines
from tests.demo.conftest import MakeReading

USERS = UserFigures(
    ttft_p50=0.05, ttft_p90=3.2, events_per_second=12345.0, requests_per_second=80.0, failed=0
)


def test_each_look_is_a_line(reading: MakeReading) -> None:
    stream = StringIO()
    ledger = reading(connecting=156, streaming=100, limit=100, running=99.0, waiting=1.0, proxy_limited=True)
    with PlainLines("heading", stream) as lines:
        lines.show(Look(1.0, ledger, USERS))
        lines.show(Look(2.0, reading(), USERS))
    assert stream.getvalue().splitlines() == [
        "heading",
        (
            "  1.0 s  receiving 0  queued 0  connecting 156  sent 0  streaming 100 | running 99  waiting 1  "
            "unexplained –  proxy_limited 1 | TTFT p50 50 ms  p90 3.20 s  12,345 events/s"
        ),
        (
            "  2.0 s  receiving 0  queued 0  connecting 0  sent 0  streaming 0 | running –  waiting 0  "
            "unexplained –  proxy_limited 0 | TTFT p50 50 ms  p90 3.20 s  12,345 events/s"
        ),
    ]


def test_failures_are_shown_when_there_are_any(reading: MakeReading) -> None:
    stream = StringIO()
    failing = UserFigures(
        ttft_p50=None, ttft_p90=None, events_per_second=0.0, requests_per_second=0.0, failed=7
    )
    with PlainLines("heading", stream) as lines:
        lines.show(Look(1.0, reading(), failing))
    assert stream.getvalue().rstrip().endswith("failed 7")
