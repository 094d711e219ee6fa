"""The candidates of a view, compared and summed: whatever is kept, the figures are those of now."""

from collections.abc import Sequence
from random import Random

import pytest

from replicarouter.engines.base import EngineReading
from replicarouter.fleet.ledger import OUTSTANDING, Ledger
from replicarouter.fleet.replica import FOREIGN_HOLDS, PENALTY, Replica
from replicarouter.policies.base import View
from replicarouter.policies.crowd import SETTLE_EVERY, Crowd
from tests.scene import a_replica


def some(*outstanding: int, weights: Sequence[float] = (), ledgers: Sequence[Ledger] = ()) -> list[Replica]:
    shared = Ledger()
    replicas = [
        a_replica(
            f"r{number}",
            ledger=ledgers[number] if ledgers else shared,
            weight=weights[number] if weights else 1.0,
        )
        for number in range(len(outstanding))
    ]
    for replica, count in zip(replicas, outstanding, strict=True):
        replica.cells[replica.row + OUTSTANDING] = count
    return replicas


def view_of(
    replicas: Sequence[Replica], candidates: Sequence[Replica] | None = None, now: float = 1000.0
) -> View:
    return View(replicas, replicas if candidates is None else candidates, now, Random(7))


def check(crowd: Crowd, view: View) -> None:
    """Everything the crowd says is what asking each replica gives."""
    candidates, now = view.candidates, view.now
    real = [one.cost(now) for one in candidates]
    order = sorted(range(len(real)), key=crowd.costs(view).__getitem__)
    assert [real[index] for index in order] == pytest.approx(sorted(real))
    assert crowd.shares(view) == [one.share(now) for one in candidates]
    load, share = crowd.total(view)
    assert load == pytest.approx(sum(one.load(now) for one in candidates))
    assert share == pytest.approx(sum(one.share(now) for one in candidates))
    figures = crowd.figures(view)
    assert {name: dict(row) for name, row in figures.items()} == {
        one.name: pytest.approx({"load": one.load(now), "cost": one.cost(now)}) for one in candidates
    }
    assert len(figures) == len(candidates)


WEIGHTS = [(), (2.5, 2.5, 2.5, 2.5), (1, 2, 4, 0.5)]


def test_figures_stay_those_of_their_moment() -> None:
    replicas = some(1, 2, 3)
    candidates = replicas[:2]
    figures = Crowd().figures(view_of(replicas, candidates))
    replicas[0].cells[replicas[0].row + OUTSTANDING] = 9
    candidates.append(replicas[2])
    assert {name: row["load"] for name, row in figures.items()} == {"r0": 1, "r1": 2}
    with pytest.raises(KeyError):
        figures["r2"]


@pytest.mark.parametrize("weights", WEIGHTS)
def test_counts_are_read_anew_each_time(weights: Sequence[float]) -> None:
    replicas = some(3, 1, 4, 1, weights=weights)
    crowd = Crowd()
    for count in (0, 7, 2):
        check(crowd, view_of(replicas))
        replicas[1].cells[replicas[1].row + OUTSTANDING] = count


@pytest.mark.parametrize("weights", WEIGHTS)
def test_failures_load_of_others_and_slow_starts_count_while_they_last(weights: Sequence[float]) -> None:
    replicas = some(3, 1, 4, 1, weights=weights)
    crowd, view = Crowd(), view_of(replicas)
    check(crowd, view)
    replicas[0].failed(1000.0)
    replicas[0].failed(1003.0)
    replicas[1].take(EngineReading(running=8, waiting=2), 1000.0)
    replicas[2].start_slowly(1000.0, 30.0)
    for seconds in (0, 1, PENALTY - 0.5, PENALTY, PENALTY + 3, 29, 30, 31):
        check(crowd, view_of(replicas, now=1000.0 + seconds))


@pytest.mark.parametrize("weights", WEIGHTS)
def test_the_same_load_of_others_counts_again_when_it_is_read_after_a_gap(weights: Sequence[float]) -> None:
    replicas = some(3, 1, 4, 1, weights=weights)
    crowd, late = Crowd(), 1000.0 + FOREIGN_HOLDS + 0.1
    replicas[1].take(EngineReading(running=8, waiting=2), 1000.0)
    check(crowd, view_of(replicas))
    check(crowd, view_of(replicas, now=late))

    replicas[1].take(EngineReading(running=8, waiting=2), late)

    check(crowd, view_of(replicas, now=late))


@pytest.mark.parametrize("weights", WEIGHTS)
def test_equal_costs_stay_equal(weights: Sequence[float]) -> None:
    replicas = some(1, 1, 0, 0, weights=weights)
    replicas[3].failed(1000.0)

    costs = Crowd().costs(view_of(replicas))

    real = [one.cost(1000.0) for one in replicas]
    assert [costs.index(cost) for cost in costs] == [real.index(cost) for cost in real]


def test_other_candidates_are_not_taken_for_those_before() -> None:
    replicas = some(3, 1, 4, 1, 5)
    replicas[2].failed(1000.0)
    crowd = Crowd()
    for left_out in replicas:
        check(crowd, view_of(replicas, [one for one in replicas if one is not left_out]))
    check(crowd, view_of(replicas, [replicas[4]]))
    check(crowd, view_of(replicas))
    check(crowd, view_of(replicas, list(reversed(replicas))))


def test_candidates_whose_list_was_changed_in_place_are_not_taken_for_those_before() -> None:
    replicas = some(3, 1, 4)
    candidates = [*replicas]
    crowd, view = Crowd(), view_of(replicas, candidates)
    check(crowd, view)

    candidates.pop(0)

    check(crowd, view)


def test_a_new_list_of_replicas_is_asked_for_its_weights() -> None:
    replicas = some(3, 1, 4)
    crowd = Crowd()
    check(crowd, view_of([*replicas]))

    replicas[0].weight = 5.0

    check(crowd, view_of([*replicas]))


def test_replicas_of_several_ledgers_are_asked_one_by_one() -> None:
    replicas = some(3, 1, 4, weights=(1, 1, 2), ledgers=[Ledger() for _ in range(3)])
    replicas[1].failed(1000.0)

    check(Crowd(), view_of(replicas))


@pytest.mark.parametrize("weights", [(), (1, 2)])
def test_who_is_special_no_more_is_not_asked_for_ever(weights: Sequence[float]) -> None:
    replicas = some(0, 0, weights=weights)
    crowd = Crowd()
    replicas[0].failed(1000.0)
    replicas[1].take(EngineReading(running=8, waiting=2), 1000.0)
    crowd.costs(view_of(replicas))
    assert len(replicas[0].special) == 2

    replicas[1].take(EngineReading(running=0, waiting=0), 1001.0)
    crowd.costs(view_of(replicas, now=1000.0 + SETTLE_EVERY))
    assert replicas[0].special == {replicas[0].row}
    crowd.costs(view_of(replicas, now=1000.0 + PENALTY))
    assert not replicas[0].special


def test_a_special_replica_of_another_pool_does_not_disturb() -> None:
    ledger = Ledger()
    ours, other, theirs = (a_replica(name, ledger=ledger) for name in "abc")
    theirs.failed(1000.0)

    check(Crowd(), view_of([ours, other]))
