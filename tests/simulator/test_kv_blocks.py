"""Blocks are counted, found again by their hash, and let go in the order of their last use."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicarouter.simulator.kv_blocks import KvBlocks
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


def hold(pool: KvBlocks, chain: list[int], blocks: int | None = None) -> tuple[int, list[int]]:
    """Take and publish blocks for a prompt: how many were found, and the hashes of those it holds."""
    found = pool.take_prefix(chain, len(chain) if blocks is None else blocks)
    return found, chain[:found] + pool.publish(chain[found:])


def test_only_a_leading_run_is_found() -> None:
    pool = KvBlocks(10, 16)
    hold(pool, [1, 2, 3])
    assert hold(pool, [1, 2, 9, 3])[0] == 2
    assert hold(pool, [8, 2, 3])[0] == 0


def test_shared_blocks_are_held_once() -> None:
    pool = KvBlocks(10, 16)
    _, first = hold(pool, [1, 2, 3])
    _, second = hold(pool, [1, 2, 4])
    assert pool.free == 6
    pool.release(first, 0)
    assert pool.free == 7
    pool.release(second, 0)
    assert (pool.free, pool.usage, pool.findable) == (10, 0, 4)


def test_block_without_a_hash_is_taken_before_any_that_can_be_found() -> None:
    pool = KvBlocks(10, 16)
    pool.release(hold(pool, [1, 2, 3])[1], 0)
    assert pool.take(7)
    assert pool.findable == 3
    assert pool.take(1)
    assert pool.findable == 2


def test_tail_is_let_go_before_what_it_follows_and_the_oldest_use_first() -> None:
    pool = KvBlocks(4, 16)
    pool.release(hold(pool, [1, 2])[1], 0)
    pool.release(hold(pool, [3, 4])[1], 0)
    pool.release(hold(pool, [1, 2])[1], 0)
    left = []
    while pool.take(1):
        left.append([number for number in (1, 2, 3, 4) if number in pool])
    assert left == [[1, 2, 3], [1, 2], [1], []]


def test_block_in_use_is_never_let_go() -> None:
    pool = KvBlocks(3, 16)
    _, held = hold(pool, [1, 2])
    assert not pool.take(2)
    assert pool.take(1)
    assert held[0] in pool
    assert held[1] in pool


def test_block_computed_twice_at_a_time_is_held_twice_and_found_once() -> None:
    pool = KvBlocks(10, 16)
    assert pool.take_prefix([1, 2], 2) == pool.take_prefix([1, 2], 2) == 0
    assert (pool.publish([1, 2]), pool.publish([1, 2])) == ([1, 2], [])
    assert pool.free == 6
    pool.release([], 2)
    assert (pool.free, pool.findable) == (8, 2)


def test_blocks_of_a_reply_can_be_found_after_its_end() -> None:
    pool = KvBlocks(10, 16)
    _, held = hold(pool, [1, 2], blocks=5)
    pool.release(held, 3, more=[3, 4])
    assert pool.free == 10
    assert hold(pool, [1, 2, 3, 4, 5])[0] == 4


def test_prefix_fits_when_what_is_in_use_makes_up_for_the_rest() -> None:
    pool = KvBlocks(4, 16)
    hold(pool, [1, 2, 3])
    assert not pool.fit([], 2)
    assert not pool.fit([1, 9], 3)
    assert pool.fit([1, 2, 9], 3)


def test_finding_a_free_block_takes_it() -> None:
    pool = KvBlocks(4, 16)
    pool.release(hold(pool, [1, 2])[1], 0)
    assert pool.take(2)
    assert not pool.fit([1, 2], 3)
    assert pool.fit([1, 2], 2)


def test_reset_forgets_all_unless_something_runs() -> None:
    pool = KvBlocks(4, 16)
    _, held = hold(pool, [1, 2])
    assert not pool.reset()
    assert pool.findable == 2
    pool.release(held, 0)
    assert pool.reset()
    assert (pool.findable, pool.free) == (0, 4)
    assert pool.take(4)


class Plain:
    """The same rules, said with lists: slow and easy to believe."""

    def __init__(self, total: int) -> None:
        self.free = total
        self.holders: dict[int, int] = {}
        self.idle: list[int] = []

    def take_prefix(self, chain: list[int], blocks: int) -> int:
        found = 0
        for one in chain:
            if one in self.idle:
                self.idle.remove(one)
                self.free -= 1
            elif one not in self.holders:
                break
            self.holders[one] = self.holders.get(one, 0) + 1
            found += 1
        self.free -= blocks - found
        self.idle = self.idle[max(0, len(self.idle) - self.free) :]
        return found

    def publish(self, chain: list[int]) -> list[int]:
        own = [one for one in chain if one not in self.holders]
        self.idle = [one for one in self.idle if one not in own]
        self.holders.update(dict.fromkeys(own, 1))
        return own

    def release(self, held: list[int], others: int, more: list[int]) -> None:
        for one in reversed(more):
            if one not in self.holders:
                self.idle = [other for other in self.idle if other != one] + [one]
        for one in reversed(held):
            self.holders[one] -= 1
            if not self.holders[one]:
                del self.holders[one]
                self.idle.append(one)
                self.free += 1
        self.free += others


@examples(400)
@given(
    total=st.integers(6, 24),
    work=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 6), st.integers(0, 3), st.booleans()), max_size=80
    ),
)
def test_any_sequence_of_uses_goes_as_the_rules_say(
    total: int, work: list[tuple[int, int, int, bool]]
) -> None:
    pool, plain = KvBlocks(total, 16), Plain(total)
    running: list[tuple[list[int], list[int], list[int], int]] = []
    for branch, length, extra, ends in work:
        chain = [1, 2, *(100 * branch + 100 + place for place in range(length))]
        if ends and running:
            held, others_held, more, others = running.pop(branch % len(running))
            pool.release(held, others, more)
            plain.release(others_held, others, more)
        elif pool.fit(chain, len(chain) + extra):
            found = pool.take_prefix(chain, len(chain) + extra)
            assert found == plain.take_prefix(chain, len(chain) + extra)
            held = chain[:found] + pool.publish(chain[found:])
            assert held == chain[:found] + plain.publish(chain[found:])
            reply = [100 * branch + 150 + length + place for place in range(extra)]
            running.append((held, list(held), reply, len(chain) + extra - len(held)))
        assert pool.free == plain.free
        assert pool.findable == len(plain.holders) + len(plain.idle)
        assert all(one in pool for one in (*plain.holders, *plain.idle))
