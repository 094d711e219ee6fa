"""The index of prefixes: who holds what, what is popular, and that it stays within its bounds."""

import sys
import tracemalloc
from collections import OrderedDict
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicarouter.policies.prefix_index import (
    BYTES_PER_BLOCK,
    BYTES_PER_HOLDING,
    HALVING,
    LEAST_POPULAR,
    SHARED_BY,
    Found,
    PrefixIndex,
    bits,
)

MUCH = 2**30
EACH = BYTES_PER_BLOCK + BYTES_PER_HOLDING


def an_index(replicas: int = 2, *, capacity: int = 1000, most_bytes: int = MUCH) -> PrefixIndex:
    index = PrefixIndex(most_bytes)
    for slot in range(replicas):
        assert index.open(capacity) == slot
    return index


def prompt(*parts: int) -> list[int]:
    """Chained hashes: what stands before a block is part of it."""
    return [hash(parts[: end + 1]) for end in range(len(parts))]


def longest(found: Found) -> dict[int, int]:
    return {slot: depth for depth, holders in reversed(found.steps) for slot in bits(holders)}


def test_what_was_sent_is_found_where_it_was_sent() -> None:
    index = an_index()
    index.note(1, prompt(1, 2, 3))

    assert longest(index.find(prompt(1, 2, 3, 4))) == {1: 3}
    assert longest(index.find(prompt(1, 2))) == {1: 2}
    assert longest(index.find(prompt(2, 1))) == {}
    assert index.held(1, prompt(1, 2, 9)) == 2
    assert index.held(0, prompt(1, 2, 3)) == 0


def test_every_holder_is_named_at_its_own_depth() -> None:
    index = an_index(3)
    index.note(0, prompt(1, 2, 3, 4, 5))
    index.note(1, prompt(1, 2))
    index.note(2, prompt(1, 2, 3))

    assert longest(index.find(prompt(1, 2, 3, 4, 9))) == {0: 4, 1: 2, 2: 3}


def test_how_much_was_held_already_is_told() -> None:
    index = an_index()

    assert index.note(0, prompt(1, 2)) == 0
    assert index.note(0, prompt(1, 2, 3, 4)) == 2
    assert index.note(1, prompt(1, 2, 3, 4)) == 0
    assert index.note(0, ()) == 0


def test_tails_are_dropped_before_heads_and_old_before_new() -> None:
    index = an_index(1, capacity=5)
    index.note(0, prompt(1, 2, 3))
    index.note(0, prompt(7, 8, 9))

    assert index.held(0, prompt(1, 2, 3)) == 2
    assert index.held(0, prompt(7, 8, 9)) == 3
    assert index.evicted == 1
    assert index.cut == 0


def test_a_prompt_that_comes_again_is_dropped_after_all_that_came_before_it() -> None:
    index = an_index(1, capacity=6)
    for one in ((1, 2, 3), (4, 5, 6), (1, 2, 3), (1, 2, 3), (7,)):
        index.note(0, prompt(*one))
    assert [index.held(0, prompt(*one)) for one in ((1, 2, 3), (4, 5, 6), (7,))] == [3, 2, 1]
    index.resize(0, 2)
    assert index.note(0, prompt(7)) == 1
    assert index.blocks_of(0) == 2


def test_prompts_with_a_hash_in_common_are_noted_as_any_others() -> None:
    index = an_index(2, capacity=5)
    for slot in range(2):
        for blocks in ([1, 2, 9], [8], [4, 5, 9], [7], [1, 2, 9], [8], [4, 5, 9]):
            index.note(slot, blocks)
            assert all(index.held(slot, [block]) for block in blocks)
            assert index.blocks_of(slot) <= 5
    for slot in range(2):
        index.clear(slot)
    assert index.entries == 0
    assert index.bytes == 0


def test_a_replica_that_lost_its_cache_or_left_holds_nothing() -> None:
    index = an_index(2)
    index.note(0, prompt(1, 2))
    index.note(1, prompt(1, 2))

    index.clear(0)
    assert longest(index.find(prompt(1, 2))) == {1: 2}
    index.close(1)
    assert index.find(prompt(1, 2)).steps == ()
    assert index.bytes == 0
    assert index.open(10) == 1
    assert index.held(1, prompt(1, 2)) == 0


def test_what_many_conversations_begin_with_is_popular() -> None:
    index = an_index(4)
    for user in range(60):
        index.note(user % 4, prompt(0, 0, user, 1))

    found = index.find(prompt(0, 0, 7, 1))
    assert found.popular == found.shared == 2
    assert longest(found) == {7 % 4: 4}


def test_a_conversation_may_go_on_for_long_without_being_popular() -> None:
    index = an_index(4)
    history = [1]
    for turn in range(100):
        history += [turn, turn]
        index.note(0, prompt(*history))
        index.note(0, prompt(*history))

    assert index.find(prompt(*history)).shared == 0


def test_what_few_conversations_share_is_shared_and_not_popular() -> None:
    index = an_index(4)
    for user in range(200):
        index.note(user % 4, prompt(user))
    for user in range(SHARED_BY + 2):
        index.note(0, prompt(-1, -1, user))

    found = index.find(prompt(-1, -1, 0))
    assert (found.popular, found.shared) == (0, 2)
    assert longest(found) == {0: 3}


def test_a_few_tries_of_the_same_are_no_crowd_however_large_the_fleet() -> None:
    index = an_index(1000)
    for user in range(LEAST_POPULAR):
        index.note(0, prompt(5, 6, user))
    assert index.find(prompt(5, 6)).popular == 0

    index.note(0, prompt(5, 6, -1))
    assert index.find(prompt(5, 6)).popular == 2


def test_what_was_popular_is_forgotten() -> None:
    index = an_index(2, capacity=10**6)
    for user in range(HALVING):
        index.note(0, prompt(1, 2, user))
    assert index.find(prompt(1, 2)).popular == 2

    for user in range(4 * HALVING):
        index.note(1, prompt(9, user))

    assert index.find(prompt(1, 2)).popular == 0
    assert index.find(prompt(9, 1)).popular == 1


def test_the_bound_in_bytes_holds_and_what_it_costs_is_counted() -> None:
    index = an_index(2, capacity=1000, most_bytes=40 * EACH)
    for user in range(100):
        index.note(user % 2, prompt(user, 1, 2))

    assert index.bytes <= 40 * EACH
    assert index.blocks_of(0) == index.blocks_of(1) == 20
    assert index.cut == 300 - 40
    assert index.evicted == 0


def test_a_newcomer_takes_its_part_of_the_bound() -> None:
    index = an_index(1, most_bytes=40 * EACH)
    for user in range(40):
        index.note(0, prompt(user))
    assert index.blocks_of(0) == 40

    index.open(1000)
    index.note(0, prompt(0))
    assert index.blocks_of(0) == 20


def test_the_measured_costs_are_what_it_takes() -> None:
    blocks = 60_000
    hashes = [(number * 2654435761) << 28 for number in range(blocks)]
    tracemalloc.start()
    try:
        index = an_index(2, capacity=blocks, most_bytes=blocks * 2 * EACH)
        before, _ = tracemalloc.get_traced_memory()
        for start in range(0, blocks, 100):
            index.note(start // 100 % 2, hashes[start : start + 100])
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    taken = after - before + blocks * sys.getsizeof(hashes[-1])  # each request brings hashes of its own
    assert taken <= index.bytes


PROMPTS = st.lists(st.integers(0, 2), max_size=6)
STEPS = st.lists(st.tuples(st.integers(0, 2), PROMPTS), max_size=40)


@given(STEPS, PROMPTS, st.integers(1, 8))
def test_it_knows_what_an_lru_list_of_each_replica_knows(
    steps: Sequence[tuple[int, list[int]]], asked: list[int], capacity: int
) -> None:
    index = an_index(3, capacity=capacity)
    lists: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(3)]
    for slot, parts in steps:
        blocks = prompt(*parts)
        held = lists[slot]
        known = next((at for at, one in enumerate(blocks) if one not in held), len(blocks))
        assert index.note(slot, blocks) == known
        for one in reversed(blocks):
            held[one] = None
            held.move_to_end(one)
        while len(held) > capacity:
            held.popitem(last=False)

    blocks = prompt(*asked)
    expected = {}
    for slot, held in enumerate(lists):
        depth = next((at for at, one in enumerate(blocks) if one not in held), len(blocks))
        assert index.held(slot, blocks) == depth
        if depth:
            expected[slot] = depth
    found = index.find(blocks)
    assert longest(found) == {slot: depth for slot, depth in expected.items() if depth > found.popular}
    assert index.bytes == sum(BYTES_PER_HOLDING * len(held) for held in lists) + BYTES_PER_BLOCK * len(
        {one for held in lists for one in held}
    )


@pytest.mark.parametrize(("mask", "places"), [(0, []), (1, [0]), (0b10110, [1, 2, 4]), (1 << 900, [900])])
def test_bits_are_told_by_their_places(mask: int, places: list[int]) -> None:
    assert list(bits(mask)) == places
