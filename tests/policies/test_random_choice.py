"""The baseline: a random candidate, whatever its load."""

from collections import Counter
from collections.abc import Callable

from replicarouter.fleet.ledger import OUTSTANDING
from replicarouter.policies.random_choice import RandomChoice
from tests.scene import a_replica

Choose = Callable[..., list[str]]


def test_load_does_not_matter(choose: Choose) -> None:
    busy, idle = a_replica("a"), a_replica("b")
    busy.cells[busy.row + OUTSTANDING] = 100

    counts = Counter(choose(RandomChoice(), [busy, idle], 2000))

    assert 850 < counts["a"] < 1150


def test_weights_set_the_shares(choose: Choose) -> None:
    counts = Counter(choose(RandomChoice(), [a_replica("a", weight=3), a_replica("b")], 4000))

    assert 2850 < counts["a"] < 3150
