"""The prefix of a prompt as chained hashes: equal up to some block, the prompts are equal up to its end."""

from collections.abc import Sequence

from xxhash import xxh3_64_intdigest

from replicarouter.protocol.request import BLOCK_CHARACTERS

MOST_BLOCKS = 1024
"""Blocks of a prompt that are hashed: half a million characters, about 130,000 tokens. What stands behind
them is not looked for; who shares so much has found its replica long before."""


def chained_hashes(text: bytes, seed: int = 0) -> Sequence[int]:
    """One hash for each whole block of `text`, of that block and, through its seed, of all before it.

    A "character" is a byte of UTF-8 here: of those a token takes three to five in most languages, while
    the characters of one token are between less than one (Chinese) and five. What is left behind the last
    whole block has no hash, as in engines, which share whole blocks only.
    """
    block, digest = BLOCK_CHARACTERS, seed
    end = min(len(text) - block + 1, MOST_BLOCKS * block)
    return [digest := xxh3_64_intdigest(text[at : at + block], digest) for at in range(0, end, block)]
