"""A request's body given away as it comes, past the queue in which aiohttp has it wait for a task.

`tests/proxy/test_aiohttp_payload.py` fails when a release changes what this leans on; the version range in
pyproject.toml says which releases were seen.
"""

from typing import Any, Protocol

from aiohttp.streams import StreamReader

__all__ = ("Taker", "divert", "restore")


class Taker(Protocol):
    """Who gets the bytes of a body. None of its methods may raise: aiohttp's parser calls them."""

    def take(self, data: bytes) -> None:
        """Bytes have come, as often as the client's connection was read or a chunk of the body began."""

    def ended(self) -> None:
        """The body is whole."""

    def failed(self, error: BaseException) -> None:
        """It will never be whole."""


class _Diverted(StreamReader):
    """What a body's `StreamReader` becomes for the time being. The parser does not let it be replaced, and
    a task that wakes up for every piece would cost more than all that happens to the piece.

    Nobody waits on it meanwhile, so its timer is in no use, and the taker stands there.
    """

    __slots__ = ()

    def feed_data(self, data: bytes, size: int = 0) -> bool:  # noqa: ARG002 - aiohttp's signature
        """Have it taken at once; the parser has no more of it."""
        self.total_bytes += len(data)
        self._cursor += len(data)
        taker: Any = self._timer
        taker.take(data)
        return False

    def feed_eof(self) -> None:
        """Remember it, too, for who asks later."""
        super().feed_eof()
        taker: Any = self._timer
        taker.ended()

    def set_exception(self, exc: BaseException, *cause: BaseException) -> None:
        """The same."""
        super().set_exception(exc, *cause)
        taker: Any = self._timer
        taker.failed(exc)

    def end_http_chunk_receiving(self) -> None:
        """Where chunks end is told to nobody, so that nothing piles up."""


def divert(content: StreamReader, taker: Taker) -> Any:
    """Have all that comes from now on given to `taker`; what has come before must have been read.

    Returns what `restore` wants back.
    """
    timer = content._timer
    content.__class__ = _Diverted
    content._timer = taker  # type: ignore[assignment]
    return timer


def restore(content: StreamReader, timer: Any) -> None:
    """Have what comes from now on wait to be read, as ever."""
    content.__class__ = StreamReader
    content._timer = timer
