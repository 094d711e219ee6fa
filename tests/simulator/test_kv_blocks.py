"""Blocks are counted, found again by their hash, and let go in the order of their last use."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicarouter.simulator.kv_blocks import KvBlocks
from replicarouter.simulator.prefix_tree import Run
from tests.properties import examples


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (1, 1), (16, 1), (17, 2), (160, 10)])
def test_tokens_need_whole_blocks(tokens: int, blocks: int) -> None:
    assert KvBlocks(100, 16).needed(tokens) == blocks


def test_taking_is_all_or_nothing() -> None:
    pool = KvBlocks(10, 16)
    assert pool.take(7)
    assert not pool.take(4)
    assert pool.free == 3
    assert pool.usage == pytest.approx(0.7)
    pool.give_back(7)
    assert pool.usage == 0


def hold(pool: KvBlocks, chain: list[int], blocks: int | None = None) -> Run:
    """Take and publish the blocks of a prompt."""
    run = pool.take_prefix(chain, len(chain) if blocks is None else blocks)
    return pool.publish(run, chain[run.end :])


def test_only_a_leading_run_is_found() -> None:
    pool = KvBlocks(10, 16)
    hold(pool, [1, 2, 3])
    assert [pool.find(chain) for chain in ([1, 2, 3, 4], [1, 2], [1, 2, 9], [8, 2], [])] == [3, 2, 2, 0, 0]


def test_shared_blocks_are_held_once() -> None:
    pool = KvBlocks(10, 16)
    first, second = hold(pool, [1, 2, 3]), hold(pool, [1, 2, 4])
    assert pool.free == 6
    pool.release(first, 0)
    assert pool.free == 7
    pool.release(second, 0)
    assert (pool.free, pool.usage, pool.findable) == (10, 0, 4)


def test_block_without_a_hash_is_taken_before_any_that_can_be_found() -> None:
    pool = KvBlocks(10, 16)
    pool.release(hold(pool, [1, 2, 3]), 0)
    assert pool.take(7)
    assert pool.findable == 3
    assert pool.take(1)
    assert pool.findable == 2


def test_tail_is_let_go_before_what_it_follows_and_the_oldest_use_first() -> None:
    pool = KvBlocks(4, 16)
    for chain in ([1, 2], [3, 4], [1, 2]):
        pool.release(hold(pool, chain), 0)
    left = []
    while pool.take(1):
        left.append((pool.find([1, 2]), pool.find([3, 4])))
    assert left == [(2, 1), (2, 0), (1, 0), (0, 0)]


def test_looking_is_no_use() -> None:
    pool = KvBlocks(2, 16)
    for number in (1, 2):
        pool.release(hold(pool, [number]), 0)
    assert pool.find([1]) == 1
    assert pool.take(1)
    assert (pool.find([1]), pool.find([2])) == (0, 1)


def test_block_in_use_is_never_let_go() -> None:
    pool = KvBlocks(3, 16)
    hold(pool, [1, 2])
    assert not pool.take(2)
    assert pool.take(1)
    assert pool.find([1, 2]) == 2


def test_copy_of_a_block_that_was_computed_at_the_same_time_is_given_back() -> None:
    pool = KvBlocks(10, 16)
    first, second = pool.take_prefix([1, 2], 2), pool.take_prefix([1, 2], 3)
    assert pool.free == 5
    first, second = pool.publish(first, [1, 2]), pool.publish(second, [1, 2])
    assert (pool.free, pool.findable) == (7, 2)
    pool.release(first, 0)
    assert pool.free == 7
    pool.release(second, 1)
    assert (pool.free, pool.findable) == (10, 2)


def test_copy_of_a_block_that_was_released_meanwhile_is_given_back() -> None:
    pool = KvBlocks(10, 16)
    first, second = pool.take_prefix([1, 2], 2), pool.take_prefix([1, 2], 2)
    pool.release(pool.publish(first, [1, 2]), 0)
    assert pool.free == 8
    assert pool.publish(second, [1, 2]).end == 2
    assert pool.free == 8
    assert pool.findable == 2


def test_prefix_fits_when_what_is_in_use_makes_up_for_the_rest() -> None:
    pool = KvBlocks(4, 16)
    hold(pool, [1, 2, 3])
    assert not pool.fit([], 2)
    assert not pool.fit([1, 9], 3)
    assert pool.fit([1, 2, 9], 3)


def test_finding_a_free_block_takes_it() -> None:
    pool = KvBlocks(4, 16)
    pool.release(hold(pool, [1, 2]), 0)
    assert pool.take(2)
    assert not pool.fit([1, 2], 3)
    assert pool.fit([1, 2], 2)


def test_reset_forgets_all_unless_something_runs() -> None:
    pool = KvBlocks(4, 16)
    run = hold(pool, [1, 2])
    assert not pool.reset()
    assert pool.findable == 2
    pool.release(run, 0)
    assert pool.reset()
    assert (pool.findable, pool.find([1, 2]), pool.free) == (0, 0, 4)
    assert pool.take(4)


class Plain:
    """The same rules, said with lists block by block: slow and easy to believe."""

    def __init__(self, total: int) -> None:
        self.free = total
        self.holders: dict[int, int] = {}
        self.idle: list[int] = []

    def hold(self, chain: list[int]) -> list[int]:
        found = []
        for one in chain:
            if one in self.idle:
                self.idle.remove(one)
                self.free -= 1
            elif one not in self.holders:
                break
            self.holders[one] = self.holders.get(one, 0) + 1
            found.append(one)
        return found

    def take_prefix(self, chain: list[int], blocks: int) -> list[int]:
        found = self.hold(chain)
        self.free -= blocks - len(found)
        self.idle = self.idle[max(0, len(self.idle) - self.free) :]
        return found

    def publish(self, held: list[int], chain: list[int]) -> list[int]:
        found = self.hold(chain)
        self.free += len(found)
        self.holders.update(dict.fromkeys(chain[len(found) :], 1))
        return held + chain

    def release(self, held: list[int], others: int) -> None:
        for one in reversed(held):
            self.holders[one] -= 1
            if not self.holders[one]:
                del self.holders[one]
                self.idle.append(one)
                self.free += 1
        self.free += others


def chain_of(branches: tuple[int, int], length: int) -> list[int]:
    """Block hashes of one of some conversations that begin alike and part, perhaps twice."""
    first, second = branches
    places = [(place, first if place > 2 else 0, second if place > 5 else 0) for place in range(length)]
    return [place + 100 * one + 10_000 * other for place, one, other in places]


@examples(600)
@given(
    total=st.integers(8, 30),
    work=st.lists(
        st.tuples(
            st.tuples(st.integers(0, 2), st.integers(0, 1)),
            st.integers(0, 10),
            st.integers(0, 3),
            st.sampled_from(["begin", "begin", "publish", "end"]),
        ),
        max_size=100,
    ),
)
def test_any_sequence_of_uses_goes_as_the_rules_say(
    total: int, work: list[tuple[tuple[int, int], int, int, str]]
) -> None:
    pool, plain = KvBlocks(total, 16), Plain(total)
    running: list[tuple[Run, list[int], list[int], int]] = []  # and what is left to be published
    for branches, length, extra, does in work:
        chain = chain_of(branches, length)
        if does == "begin" and pool.fit(chain, length + extra):
            run, held = pool.take_prefix(chain, length + extra), plain.take_prefix(chain, length + extra)
            running.append((run, held, chain[len(held) :], length + extra))
        elif does != "begin" and running:
            run, held, rest, blocks = running.pop(length % len(running))
            part = rest[: extra if does == "publish" else len(rest)]
            run, held = pool.publish(run, part), plain.publish(held, part)
            if does == "publish":
                running.append((run, held, rest[extra:], blocks))
            else:
                pool.release(run, blocks - run.end)
                plain.release(held, blocks - len(held))
        assert pool.free == plain.free
        assert pool.findable == len(plain.holders) + len(plain.idle)
        for run, held, _, _ in running:
            assert run.end == len(held)
    known = {*plain.holders, *plain.idle}
    for branches in ((one, other) for one in range(3) for other in range(2)):
        chain = chain_of(branches, 10)
        expected = next((place for place, one in enumerate(chain) if one not in known), len(chain))
        assert pool.find(chain) == expected
