"""The display without a terminal: one line for each look."""

from types import TracebackType
from typing import TextIO

from replicarouter.demo.figures import Look
from replicarouter.demo.text import flag, number
from replicarouter.words import seconds_text


class PlainLines:
    """Writes to `stream`; use it as a context manager."""

    def __init__(self, heading: str, stream: TextIO) -> None:
        self._heading = heading
        self._stream = stream

    def __enter__(self) -> "PlainLines":
        self._write(self._heading)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is held open."""

    def show(self, look: Look) -> None:
        """Write the line of this look."""
        self._write(line_of(look))

    def _write(self, text: str) -> None:
        self._stream.write(f"{text}\n")
        self._stream.flush()


def line_of(look: Look) -> str:
    """Where every request is, what the engines say, what the users see."""
    ledger, users = look.ledger, look.users
    stages = "  ".join(f"{stage} {count}" for stage, count in ledger.stages.items())
    failed = f"  failed {number(users.failed)}" if users.failed else ""
    return (
        f"{look.seconds:5.1f} s  {stages} | running {number(ledger.running)}  "
        f"waiting {number(ledger.waiting)}  unexplained {number(ledger.unexplained)}  "
        f"proxy_limited {flag(ledger.proxy_limited)} | TTFT p50 {seconds_text(users.ttft_p50)}  "
        f"p90 {seconds_text(users.ttft_p90)}  {number(users.events_per_second)} events/s{failed}"
    )
