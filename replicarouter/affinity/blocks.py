"""The prefix of a prompt as chained hashes: equal up to some block, the prompts are equal up to its end."""

from collections import OrderedDict
from collections.abc import Sequence
from struct import Struct

from xxhash import xxh3_64_intdigest

from replicarouter.protocol.request import BLOCK_CHARACTERS

MOST_BLOCKS = 1024
"""Blocks of a prompt that are hashed: half a million characters, about 130,000 tokens. What stands behind
them is not looked for; who shares so much has found its replica long before."""

STRETCH_BLOCKS = 32
"""Blocks of one stretch, 4,000 tokens: one hash of a stretch takes a fifth of the time of those of its
blocks, and a shorter one would save less."""

MOST_STRETCHES = 4096
"""Stretches that are remembered, 64 MiB of text; the memory takes about 7 MB when it is full."""

_STRETCH = STRETCH_BLOCKS * BLOCK_CHARACTERS
_BLOCKS = Struct(f"{BLOCK_CHARACTERS}s")


def chained_hashes(text: bytes | memoryview, seed: int = 0) -> Sequence[int]:
    """One hash for each whole block of `text`, of that block and, through its seed, of all before it.

    A "character" is a byte of UTF-8 here: of those a token takes three to five in most languages, while
    the characters of one token are between less than one (Chinese) and five. What is left behind the last
    whole block has no hash, as in engines, which share whole blocks only.
    """
    digest = seed
    whole = memoryview(text)[: _hashed(text)]
    # To cut them all off in one go takes half as long as a slice for each.
    return [digest := xxh3_64_intdigest(block, digest) for (block,) in _BLOCKS.iter_unpack(whole)]


class BlockHasher:
    """Finds the hashes of what long prompts begin with again, rather than to compute them: each turn of a
    conversation repeats all that was said before.

    It remembers at most `most` stretches, by one hash of the whole stretch and all before it; the one that
    was not seen for the longest time goes first. Prompts shorter than a stretch leave nothing in it.
    """

    __slots__ = ("_most", "_stretches")

    def __init__(self, most: int = MOST_STRETCHES) -> None:
        self._most = most
        self._stretches: OrderedDict[int, Sequence[int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._stretches)

    def hashes(self, text: bytes, seed: int = 0) -> Sequence[int]:
        """The `chained_hashes` of `text`, which are the same whatever is remembered."""
        end = _hashed(text)
        if end < _STRETCH:
            return chained_hashes(text, seed)
        view, stretches = memoryview(text), self._stretches
        hashes: list[int] = []
        at, digest = 0, seed
        while at + _STRETCH <= end:
            stretch = view[at : at + _STRETCH]
            key = xxh3_64_intdigest(stretch, digest)
            known = stretches.get(key)
            if known is None:
                known = self._remember(key, tuple(chained_hashes(stretch, digest)))
            else:
                stretches.move_to_end(key)
            hashes += known
            digest = known[-1]
            at += _STRETCH
        hashes += chained_hashes(view[at:end], digest)
        return hashes

    def _remember(self, key: int, hashes: Sequence[int]) -> Sequence[int]:
        self._stretches[key] = hashes
        if len(self._stretches) > self._most:
            self._stretches.popitem(last=False)
        return hashes


def _hashed(text: bytes | memoryview) -> int:
    """How many characters of it stand in blocks that are hashed."""
    return min(len(text) // BLOCK_CHARACTERS, MOST_BLOCKS) * BLOCK_CHARACTERS
