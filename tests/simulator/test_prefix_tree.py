"""Runs are cut where prefixes part, joined where one sequence goes on, and evicted from their tails."""

from replicarouter.simulator.prefix_tree import PrefixTree, Run


def added(tree: PrefixTree, hashes: list[int]) -> Run:
    """A sequence's blocks, found or new, which it holds."""
    run = tree.hold(tree.root, hashes)
    return tree.grow(run, hashes[run.end :])


def test_what_goes_on_from_its_only_holder_is_one_run() -> None:
    tree = PrefixTree()
    run = added(tree, [1, 2])
    assert tree.grow(run, [3, 4]) is run
    assert (run.hashes, run.end, run.parent) == ([1, 2, 3, 4], 4, tree.root)


def test_run_is_cut_where_another_prefix_parts_from_it() -> None:
    tree = PrefixTree()
    first, second = added(tree, [1, 2, 3, 4]), added(tree, [1, 2, 8, 9])
    common = first.parent
    assert common is second.parent
    assert common is not None
    assert (common.hashes, common.end, common.holders, common.children) == ([1, 2], 2, 2, 2)
    assert (first.hashes, first.end, first.holders) == ([3, 4], 4, 1)
    assert (second.hashes, second.end, second.holders) == ([8, 9], 4, 1)
    assert tree.size == 6


def test_what_a_shared_run_goes_on_with_is_a_run_of_its_own() -> None:
    tree = PrefixTree()
    first, second = added(tree, [1, 2]), added(tree, [1, 2])
    assert first is second
    grown = tree.grow(first, [3])
    assert (grown.parent, grown.hashes) == (first, [3])
    assert tree.grow(second, [3]) is grown
    assert (grown.holders, tree.size) == (2, 3)


def test_find_tells_what_is_held_of_what_there_is() -> None:
    tree = PrefixTree()
    added(tree, [1, 2, 3])
    tree.release(added(tree, [1, 2, 3, 4, 5]))
    assert tree.find([1, 2, 3, 4, 9]) == (4, 3)
    assert tree.find([9]) == (0, 0)
    assert (tree.idle, tree.size) == (2, 5)


def test_every_place_of_a_run_can_be_found() -> None:
    tree = PrefixTree()
    added(tree, list(range(40)))
    for length in range(41):
        assert tree.find(list(range(length))) == (length, length)
        assert tree.find([*range(length), *range(100, 140)]) == (length, length)


def test_evicted_are_tails_of_what_was_released_first() -> None:
    tree = PrefixTree()
    for hashes in ([1, 2, 3, 4], [1, 2, 8, 9]):
        tree.release(added(tree, hashes))
    left = []
    while tree.idle:
        tree.evict(1)
        left.append((tree.find([1, 2, 3, 4])[0], tree.find([1, 2, 8, 9])[0]))
    assert left == [(3, 4), (2, 4), (2, 3), (2, 2), (1, 1), (0, 0)]
    assert tree.size == 0


def test_part_that_is_used_again_outlives_the_rest() -> None:
    tree = PrefixTree()
    tree.release(added(tree, [1, 2, 3, 4]))
    tree.release(added(tree, [7]))
    tree.release(added(tree, [1, 2]))
    tree.evict(3)
    assert (tree.find([1, 2, 3])[0], tree.find([7])[0]) == (2, 0)


def test_run_whose_branches_are_gone_grows_again() -> None:
    tree = PrefixTree()
    stem = added(tree, [1, 2])
    branch = tree.hold(tree.root, [1, 2])
    branch = tree.grow(branch, [3])
    tree.release(branch)
    tree.evict(1)
    assert tree.grow(stem, [4]) is stem
    assert stem.hashes == [1, 2, 4]


def test_queue_does_not_grow_with_use() -> None:
    tree = PrefixTree()
    for _ in range(1000):
        tree.release(added(tree, [1, 2, 3]))
    assert len(tree._queue) < 200


def test_hashes_that_are_not_chained_do_no_harm() -> None:
    tree = PrefixTree()
    runs = [
        added(tree, hashes) for hashes in ([1, 2, 1, 2], [2, 2, 2], [2, 1], [1, 1, 2], [5, 1, 2], [1, 2, 5])
    ]
    for run in runs:
        tree.release(run)
    tree.evict(tree.idle)
    assert (tree.idle, tree.size) == (0, 0)
    assert added(tree, [1, 2]).end == 2


def test_clear_forgets_all() -> None:
    tree = PrefixTree()
    tree.release(added(tree, [1, 2]))
    tree.clear()
    assert (tree.find([1]), tree.idle, tree.size) == ((0, 0), 0, 0)
    assert added(tree, [1, 2]).end == 2
