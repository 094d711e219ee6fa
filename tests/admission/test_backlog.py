"""The caller with most requests waiting, whoever comes and goes."""

from random import Random

import pytest

from replicarouter.admission.backlog import SLACK, Backlog
from replicarouter.admission.fairness import Book


def test_the_largest_counts_by_weight(book: Book) -> None:
    backlog = Backlog()
    for caller, count in (("a", 3), ("double", 5), ("b", 2)):
        for _ in range(count):
            backlog.add(book.account(caller))

    assert backlog.largest() is book.account("a")
    assert backlog.size(book.account("double")) == 2.5
    assert backlog.size(book.account("double"), more=1) == 3.0
    assert backlog.size(book.account("nobody")) == 0.0


def test_who_has_left_is_not_the_largest(book: Book) -> None:
    backlog, one, other = Backlog(), book.account("a"), book.account("b")
    backlog.add(one)
    backlog.add(one)
    backlog.add(other)
    backlog.remove(one)
    backlog.remove(one)

    assert backlog.largest() is other
    backlog.remove(other)
    assert not backlog


@pytest.mark.parametrize("seed", range(5))
def test_the_largest_is_right_after_any_coming_and_going(book: Book, seed: int) -> None:
    chance, backlog = Random(seed), Backlog()
    accounts = [book.account(name) for name in ("a", "b", "c", "double", "triple", "tenth")]
    counts = dict.fromkeys(accounts, 0)
    for _ in range(2000):
        account = chance.choice(accounts)
        if counts[account] and chance.random() < 0.5:
            counts[account] -= 1
            backlog.remove(account)
        else:
            counts[account] += 1
            backlog.add(account)
        sizes = {one: count / one.weight for one, count in counts.items()}
        if any(counts.values()):
            assert sizes[backlog.largest()] == max(sizes.values())
        assert bool(backlog) == any(counts.values())


def test_its_memory_is_bounded_by_who_waits(book: Book) -> None:
    backlog, account, other = Backlog(), book.account("a"), book.account("b")
    backlog.add(other)
    for _ in range(100):
        for _ in range(50):
            backlog.add(account)
        for _ in range(50):
            backlog.remove(account)

    assert len(backlog._heap) <= 2 * 2 + SLACK + 1
