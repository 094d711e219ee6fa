"""Chained hashes of whole blocks."""

import os
import tracemalloc

import pytest

from replicarouter.affinity.blocks import (
    MOST_BLOCKS,
    MOST_STRETCHES,
    STRETCH_BLOCKS,
    BlockHasher,
    chained_hashes,
)
from replicarouter.protocol.request import BLOCK_CHARACTERS

TEXT = bytes(range(256)) * 20
STRETCH = STRETCH_BLOCKS * BLOCK_CHARACTERS
LONG = b"".join(number.to_bytes(4, "little") for number in range(STRETCH))
"""Four stretches."""


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


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize("more", [-1, 0, 1, BLOCK_CHARACTERS - 1, BLOCK_CHARACTERS, BLOCK_CHARACTERS + 1])
@pytest.mark.parametrize("stretches", range(4))
def test_what_is_remembered_of_long_prompts_changes_no_hash(stretches: int, more: int, seed: int) -> None:
    text = LONG[: max(0, stretches * STRETCH + more)]
    hasher = BlockHasher()
    expected = list(chained_hashes(text, seed))
    assert list(hasher.hashes(text, seed)) == expected
    assert list(hasher.hashes(text, seed)) == expected
    assert list(hasher.hashes(text, seed + 1)) == list(chained_hashes(text, seed + 1))
    assert len(hasher) == 2 * (len(text) // STRETCH)


@pytest.mark.parametrize("at", [0, STRETCH - 1, STRETCH, 2 * STRETCH + 5, 4 * STRETCH - 1])
def test_prompts_that_begin_alike_have_equal_hashes_up_to_where_they_part(at: int) -> None:
    other = LONG[:at] + b"?" + LONG[at + 1 :]
    assert other != LONG
    hasher = BlockHasher()
    assert list(hasher.hashes(LONG)) == list(chained_hashes(LONG))
    assert list(hasher.hashes(other)) == list(chained_hashes(other))


def test_a_hasher_goes_no_further_than_the_bound() -> None:
    text = os.urandom(BLOCK_CHARACTERS * (MOST_BLOCKS + STRETCH_BLOCKS + 1))
    hasher = BlockHasher()
    assert list(hasher.hashes(text)) == list(chained_hashes(text))
    assert len(hasher) == MOST_BLOCKS // STRETCH_BLOCKS


def test_no_more_is_remembered_than_may_be_and_what_was_used_last_stays() -> None:
    hasher = BlockHasher(2)
    first, second, third = (LONG[at * STRETCH : (at + 1) * STRETCH] for at in range(3))
    kept = hasher.hashes(first)
    hasher.hashes(second)
    hasher.hashes(first)
    hasher.hashes(third)
    assert len(hasher) == 2
    again = hasher.hashes(first)
    assert all(one is other for one, other in zip(kept, again, strict=True))


def test_what_is_remembered_takes_no_more_than_it_says() -> None:
    hasher = BlockHasher(64)
    tracemalloc.start()
    try:
        for number in range(128):
            hasher.hashes(number.to_bytes(4, "little") * (STRETCH // 4))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken * MOST_STRETCHES / 64 < 8 * 2**20
