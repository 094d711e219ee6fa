"""The better of two random candidates."""

from collections import Counter
from collections.abc import Callable

from replicarouter.fleet.ledger import OUTSTANDING
from replicarouter.policies.power_of_two import PowerOfTwo
from tests.scene import a_replica

Choose = Callable[..., list[str]]


def test_of_two_the_less_loaded_is_always_chosen(choose: Choose) -> None:
    busy, idle = a_replica("a"), a_replica("b")
    busy.cells[busy.row + OUTSTANDING] = 1

    assert set(choose(PowerOfTwo(), [busy, idle], 50)) == {"b"}


def test_the_most_loaded_of_many_is_never_chosen(choose: Choose) -> None:
    replicas = [a_replica(name) for name in "abcdefgh"]
    replicas[3].cells[replicas[3].row + OUTSTANDING] = 9

    assert "d" not in choose(PowerOfTwo(), replicas, 500)


def test_the_second_draw_is_never_the_first(choose: Choose) -> None:
    # If it could be, the worst of three would win a ninth of the draws.
    replicas = [a_replica(name) for name in "abc"]
    for load, replica in enumerate(replicas):
        replica.cells[replica.row + OUTSTANDING] = load

    counts = Counter(choose(PowerOfTwo(), replicas, 3000))

    assert counts["c"] == 0
    assert 1850 < counts["a"] < 2150


def test_load_counts_by_weight(choose: Choose) -> None:
    heavy, light = a_replica("a", weight=10), a_replica("b")
    heavy.cells[heavy.row + OUTSTANDING] = 5

    assert set(choose(PowerOfTwo(), [heavy, light], 50)) == {"a"}
