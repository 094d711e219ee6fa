"""Numbers, and texts of others, in the sentences that people read."""

import json
from collections.abc import Callable

MOST_WRITTEN = 2048
"""Numbers whose texts are kept."""


class Written(dict[int, str]):
    """How numbers are written, by `write`; the texts of small ones are kept, those below `MOST_WRITTEN`."""

    def __init__(self, write: Callable[[int], str]) -> None:
        super().__init__()
        self._write = write

    def __missing__(self, number: int) -> str:
        text = self._write(number)
        if -1 < number < MOST_WRITTEN:
            self[number] = text
        return text


def counted(count: float, word: str) -> str:
    """A count and its word, which takes an s unless there is exactly one: `1 second`, `0.5 seconds`."""
    shown = f"{count:g}" if isinstance(count, float) else str(count)
    return f"{shown} {word}" if count == 1 else f"{shown} {word}s"


def seconds_text(value: float | None) -> str:
    """A duration in seconds or, below one, milliseconds; a dash when it is unknown."""
    if value is None:
        return "–"
    return f"{value:.2f} s" if value >= 1 else f"{value * 1000:.0f} ms"


def printable(text: str) -> str:
    """A text of others, with an escape for each character that could move a cursor or begin another line."""
    if text.isprintable():
        return text
    return "".join([one if one.isprintable() else json.dumps(one)[1:-1] for one in text])
