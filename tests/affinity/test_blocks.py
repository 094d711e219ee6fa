"""Chained hashes of whole blocks."""

import os

import pytest

from replicarouter.affinity.blocks import MOST_BLOCKS, chained_hashes
from replicarouter.protocol.request import BLOCK_CHARACTERS

TEXT = bytes(range(256)) * 20


@pytest.mark.parametrize(
    ("length", "blocks"), [(0, 0), (511, 0), (512, 1), (513, 1), (1023, 1), (1024, 2), (5120, 10)]
)
def test_each_whole_block_has_a_hash(length: int, blocks: int) -> None:
    assert len(chained_hashes(TEXT[:length])) == blocks


def test_a_longer_text_only_adds_hashes() -> None:
    whole = chained_hashes(TEXT)
    assert len(set(whole)) == len(whole)
    for length in range(0, len(TEXT), 100):
        part = chained_hashes(TEXT[:length])
        assert list(part) == list(whole[: len(part)])


def test_a_hash_speaks_for_all_that_stands_before_it() -> None:
    other = b"?" + TEXT[1:]
    assert not set(chained_hashes(TEXT)) & set(chained_hashes(other))
    late = TEXT[:600] + b"?" + TEXT[601:]
    assert [one == two for one, two in zip(chained_hashes(TEXT), chained_hashes(late), strict=True)] == [
        True,
        *[False] * 9,
    ]


def test_another_seed_shares_nothing() -> None:
    assert not set(chained_hashes(TEXT, 1)) & set(chained_hashes(TEXT, 2))


def test_their_number_is_bounded() -> None:
    text = os.urandom(BLOCK_CHARACTERS * (MOST_BLOCKS + 3))
    assert len(chained_hashes(text)) == MOST_BLOCKS
    assert len(chained_hashes(text[: BLOCK_CHARACTERS * MOST_BLOCKS])) == MOST_BLOCKS


def test_hashes_are_the_same_in_every_process() -> None:
    assert list(chained_hashes(b"a" * 1024)) == [0x4659A548A9CC8DB1, 0x958699F08697C14F]
