"""The cache of the untimed replay."""

from replicarouter.replay.block_lru import BlockLru


def test_leading_blocks_count_up_to_the_first_that_is_missing() -> None:
    cache = BlockLru(10)
    cache.insert([1, 2, 4])
    assert cache.leading([1, 2, 3, 4]) == 2
    assert cache.leading([2]) == 1
    assert cache.leading([]) == 0


def test_the_last_blocks_of_the_oldest_prompt_go_first() -> None:
    cache = BlockLru(4)
    cache.insert([1, 2, 3])
    assert cache.insert([7, 8]) == [3]
    assert cache.leading([1, 2, 3]) == 2
    assert len(cache) == 4


def test_use_keeps_a_block() -> None:
    cache = BlockLru(3)
    cache.insert([1, 2])
    cache.insert([3])
    cache.insert([1])
    cache.insert([4])
    assert 1 in cache
    assert 2 not in cache


def test_a_smaller_capacity_holds_from_the_next_insertion() -> None:
    cache = BlockLru(4)
    cache.insert([1, 2, 3, 4])
    cache.capacity = 2
    assert sorted(cache.insert([5])) == [2, 3, 4]
    assert sorted(cache.blocks()) == [1, 5]
