"""The display on a terminal."""

from io import StringIO

from rich.console import Console

from replicarouter.demo.figures import Look, UserFigures
from replicarouter.demo.screen import Screen, picture
from tests.demo.conftest import MakeReading

USERS = UserFigures(ttft_p50=0.05, ttft_p90=3.2, events_per_second=999.0, requests_per_second=8.0, failed=2)

ERASE_LINE, HIDE_CURSOR, SHOW_CURSOR = "\x1b[2K", "\x1b[?25l", "\x1b[?25h"


def drawn(look: Look, width: int = 80) -> list[str]:
    stream = StringIO()
    console = Console(file=stream, width=width)
    for part in picture(look):
        console.print(part)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def test_ledger_stands_beside_the_engines_counts(reading: MakeReading) -> None:
    ledger = reading(connecting=156, sent=2, streaming=98, limit=100, running=99.0, proxy_limited=True)
    lines = drawn(Look(12.0, ledger, USERS))
    assert lines[0].split() == [
        *("after", "12", "s"),
        *("receiving", "queued", "connecting", "sent", "streaming", "accepted"),
    ]
    assert lines[2].split() == ["all", "requests", "0", "0", "156", "2", "98", "256"]
    assert "connector limit 100, waiting for it 156; unexplained –; proxy_limited 1" in lines
    (row,) = [line for line in lines if line.startswith("127.0.0.1:8001")]
    assert row.split()[1:] == ["156", "2", "98", "256", "99", "0", "12.5%", "0.4", "s"]
    assert lines[-1] == "users: TTFT p50 50 ms, p90 3.20 s; 999 events/s, 8.0 requests/s, 2 failed"


def test_eighty_columns_cut_nothing_off(reading: MakeReading) -> None:
    ledger = reading(connecting=1234, streaming=5678, running=5678.0)
    assert not [line for line in drawn(Look(1.0, ledger, USERS)) if "…" in line]


def test_replica_without_a_reading_has_dashes(reading: MakeReading) -> None:
    lines = drawn(Look(1.0, reading(waiting=None), USERS))
    (row,) = [line for line in lines if line.startswith("127.0.0.1:8001")]
    assert row.split()[-4:] == ["–"] * 4


def test_last_picture_stays_and_the_cursor_returns(reading: MakeReading) -> None:
    stream = StringIO()
    with Screen("the heading", Console(file=stream, force_terminal=True, width=80)) as screen:
        for number in (111, 222):
            screen.show(Look(1.0, reading(streaming=number), USERS))
    written = stream.getvalue()
    last = written.rpartition(ERASE_LINE)[2]
    assert "the heading" in last
    assert "222" in last
    assert "111" not in last
    assert written.index(HIDE_CURSOR) < written.index(SHOW_CURSOR)
