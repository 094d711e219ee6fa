"""Text that stands for tokens: how many a prompt has, and the pseudo text of an answer, which depends
on a seed alone, so that the same request gets the same words from every engine, streamed or not."""

import random
from collections.abc import Iterator, Sequence
from itertools import chain, islice, repeat
from typing import TypeVar

import orjson
from xxhash import xxh3_64_intdigest, xxh32_intdigest

CHARACTERS_PER_TOKEN = 4
"""English prose in byte-pair vocabularies comes near this. Tokens of answers have exactly as many, so that
an answer that comes back in a prompt has as many tokens as when it was generated."""

_RING_SIZE = 1024

_PROSE = """
 the of and a to in is it that for on with as at by from this one two each all some more less other
 router engine replica token stream answer question batch queue cache block prompt prefix model layer
 reads writes waits runs holds keeps sends takes gives finds counts moves grows ends begins returns
 long short full empty early late first last near far open quiet steady even odd small wide narrow
 before after between within beyond until because while where when then there here now again often
 river stone bridge garden winter morning letter window kitchen harbour mountain lantern paper copper
 café naïve Zürich señor größer 東京 мост ελιά
"""
_ENDINGS = (".", ",", ".\n", ";", "?", ' "so"', " — ", " 🙂", "ing", "ly", "s", "ed")


def _make_ring() -> list[str]:
    source = random.Random("replicarouter")
    words = _PROSE.split()
    text = ""
    while len(text) < _RING_SIZE * CHARACTERS_PER_TOKEN:
        text += source.choice(_ENDINGS) if source.random() < 0.15 else " " + source.choice(words)
    starts = range(0, _RING_SIZE * CHARACTERS_PER_TOKEN, CHARACTERS_PER_TOKEN)
    return [text[start : start + CHARACTERS_PER_TOKEN] for start in starts]


_RING = _make_ring()

ESCAPED_TOKENS = tuple(orjson.dumps(text)[1:-1] for text in _RING)
"""The tokens of every text, as they stand inside a JSON string. The text of a seed begins at the
seed's place, modulo their number, and goes round and round."""

Item = TypeVar("Item")


def seed_of(prompt: bytes, seed: int) -> int:
    """The seed of an answer to `prompt`, given the request's own seed."""
    return xxh3_64_intdigest(prompt, seed & 0xFFFFFFFF)


def count_tokens(characters: int) -> int:
    """Tokens that a text of so many characters is taken to have."""
    return -(-characters // CHARACTERS_PER_TOKEN)


def pieces(text: str) -> tuple[str, ...]:
    """A text in its tokens; the last may be cut short."""
    starts = range(0, len(text), CHARACTERS_PER_TOKEN)
    return tuple(text[start : start + CHARACTERS_PER_TOKEN] for start in starts)


def token_ids(text: str) -> list[int]:
    """One made-up id for each token that `count_tokens` sees in `text`."""
    return [xxh32_intdigest(piece.encode("utf-8", "surrogatepass")) % 32000 for piece in pieces(text)]


def text_of(seed: int, start: int, count: int) -> str:
    """Tokens `start` to `start + count` of the text of `seed`."""
    return "".join(islice(walk(_RING, seed + start), count))


def walk(ring: Sequence[Item], start: int) -> Iterator[Item]:
    """The items from place `start`, modulo their number, round and round without end."""
    first = islice(ring, start % len(ring), None)
    return chain.from_iterable(chain((first,), repeat(ring)))
