"""The pieces that a canonical text is put together from, within bounds of time and memory for any body.

What a bound cuts off is always what comes last, and what came before alone decides where: a text that goes
on is cut where it was cut before.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Any

import orjson
from xxhash import xxh3_64_hexdigest

from replicarouter.protocol.json_values import Opaque

MOST_COST = 2**22
"""What one text may cost, in characters: one takes about a nanosecond from a body to its hash. A prompt
whose blocks are hashed to the last (half a million characters) may have 3,500 pieces."""

PIECE_COST = 1024
"""Cost of a piece beside its characters, about a microsecond: thousands of tiny ones in one body would hold
up the streams of others."""

MEDIA_CHARACTERS = 2048
"""Characters that an image, a recording, a video or a file takes whatever its size: about 512 tokens, in
the middle of what vision models make of one image (Gemma 3: 256, LLaVA-1.5: 576, Qwen2.5-VL: one for each
28 x 28 pixels, so 1,369 for a square of 1,036)."""

_HEX_DIGITS = 16
_END = object()


class Pieces:
    """A text in the making. Once it is `full` nothing more is to be added."""

    __slots__ = ("_texts", "left")

    def __init__(self, left: int = MOST_COST) -> None:
        self._texts: list[str] = []
        self.left = left
        """What may still be spent."""

    @property
    def full(self) -> bool:
        """Whether all has been spent."""
        return self.left <= 0

    def add(self, text: str) -> None:
        """Append `text`, or the most that one text may have."""
        self._texts.append(text[:MOST_COST])
        self.left -= len(text) + PIECE_COST

    def add_opaque(self, value: Opaque) -> None:
        """Append what stands for a value that was not built, as one piece: what is known of a text's start,
        and what stands for all of it. They are not put together before all is, as the start may be long."""
        whole = opaque_text(value)
        self._texts += (value.start, whole)
        self.left -= len(value.start) + len(whole) + PIECE_COST

    def add_media(self, dumped: bytes) -> None:
        """Append what stands for an image or the like: a hash of its JSON, as often as it weighs."""
        self.add(_weighed(xxh3_64_hexdigest(dumped)))

    def add_dumped(self, dumped: bytes) -> None:
        """Append JSON as it is, or the most that one text may have: numbers grow when they are dumped."""
        self.add(dumped[:MOST_COST].decode(errors="ignore"))

    def dumped(self, value: Any) -> bytes:
        """Canonical JSON in UTF-8: without spaces, fields in the order in which they were sent.

        They are not sorted: templates print arguments and schemas as they came, so that another order is
        another prompt to the engine's cache as well.

        What orjson does not take (something opaque, an integer beyond 64 bits, a lone surrogate, nesting of
        more than 254 levels) is written otherwise, as far as there is something left to spend.
        """
        try:
            return orjson.dumps(value)
        except TypeError:
            pass
        said = _said(value, max(1, self.left // PIECE_COST))
        self.left -= (len(said) + 2) * PIECE_COST  # to be refused takes as long as two pieces
        return ",".join(said).encode()

    def encoded(self) -> bytes:
        """The pieces as one text in UTF-8; lone surrogates, which JSON may contain, are kept."""
        return "".join(self._texts).encode("utf-8", "surrogatepass")


def opaque_text(value: Opaque) -> str:
    """What stands for a value that was not built, here and within others."""
    return _weighed(f"{value.digest:016x}")


def _weighed(digest: str) -> str:
    return digest * (MEDIA_CHARACTERS // _HEX_DIGITS)


def _said(value: Any, most: int) -> list[str]:
    """At most `most` scalars and brackets of `value`. Without recursion, as nesting may have any depth."""
    said: list[str] = []
    inner: list[Iterator[Any]] = [iter((value,))]
    while inner and len(said) < most:
        item = next(inner[-1], _END)
        if item is _END:
            inner.pop()
            said.append("]")
        elif type(item) is dict:
            inner.append(chain.from_iterable(item.items()))
            said.append("{")
        elif type(item) is list:
            inner.append(iter(item))
            said.append("[")
        elif type(item) is Opaque:
            said.append(opaque_text(item))
        else:
            # In hexadecimal since Python writes no decimal number of more than 4,300 digits.
            said.append(hex(item) if type(item) is int else repr(item))
    return said
