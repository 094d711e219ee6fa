"""Decisions that are kept: what they say, which are kept, and how many."""

from collections.abc import Callable
from random import Random
from typing import Any

import orjson
import pytest

from replicarouter.admission.decisions import (
    CAPACITY,
    MOST_BYTES,
    MOST_OF_ONE,
    MOST_REPLICAS,
    WRITE_AFTER,
    Case,
    Decisions,
    Draft,
)
from replicarouter.exchange import Exchange
from replicarouter.fleet.lifecycle import Event
from replicarouter.policies.base import View, Wait
from replicarouter.policies.least_outstanding import LeastOutstanding
from tests.admission.rig import Last, Patient, Scene, a_plan, a_scene, desks_for
from tests.scene import HandClock, HandTimer, a_fleet, a_request, an_exchange, named


def a_case(exchange: Exchange | None = None, replicas: int = 2, now: float = 1000.0) -> Case:
    fleet = a_fleet(*(f"r{number}" for number in range(replicas)))
    view = View(fleet.replicas, fleet.replicas, now, Random(1))
    exchange = exchange or an_exchange(model="m1")
    return Case("least-outstanding", LeastOutstanding(), None, a_request(), exchange, view, (), None)


def keep(decisions: Decisions, number: int = 0, now: float = 1000.0, **fields: Any) -> None:
    """Record a decision about a request with ids of this number."""
    exchange = an_exchange(**{"client_id": f"c{number}", "upstream_id": f"u{number}", **fields})
    case = a_case(exchange, now=now)
    decisions.keep(Draft(case), case.view.candidates[0])


def told(decisions: Decisions, request_id: str, now: float) -> list[dict[str, Any]]:
    """What is told of an id."""
    return [orjson.loads(one) for one in decisions.of(request_id, now)]


def a_kept_scene(*names: str, per_second: int = 50, **options: Any) -> tuple[Scene, Decisions]:
    desks = desks_for(a_plan(**options), decisions=per_second)
    scene = a_scene(*(names or ("a", "b", "c")), most=1, make_policy=desks)
    return scene, desks.decisions


def test_a_decision_says_what_was_compared_and_why_the_others_were_not() -> None:
    scene, decisions = a_kept_scene("a", "b", "c", "d", "e")
    fleet = scene.fleet
    fleet.tell(named(fleet, "b"), Event.EJECTED, "fails")
    scene.granted()
    busy = scene.granted([named(fleet, "a")])
    busy.replica.cool_until = 1001.0
    scene.give_back(busy)
    exchange = an_exchange(client_id="mine", upstream_id="theirs", model="m1")
    assert scene.admission.grant(a_request(), scene.pool, exchange, [named(fleet, "d")]) is not None

    (decision,) = told(decisions, "mine", 1003.0)
    assert decision == {
        "age": 3.0,
        "request_id": "mine",
        "upstream_id": "theirs",
        "model": "m1",
        "policy": "session",
        "attempt": 2,
        "waited": 0.0,
        "chosen": "e",
        "held_for": None,
        "affinity": "none",
        "found_characters": 0,
        "characters": 0,
        "candidates": [{"replica": "e", "figures": {"load": 0, "cost": 1.0}}],
        "candidates_left_out": 0,
        "not_candidates": {"a": "full", "b": "ejected", "c": "cooling", "d": "tried"},
        "not_candidates_left_out": 0,
        "shadow": None,
    }
    assert told(decisions, "theirs", 1003.0) == [decision]


def test_a_stored_response_leaves_no_choice() -> None:
    scene, decisions = a_kept_scene("a", "b")
    owner = named(scene.fleet, "b")
    assert scene.admission.grant(a_request(), scene.pool, an_exchange(client_id="x"), [], owner)
    (decision,) = told(decisions, "x", 1000.0)
    assert (decision["chosen"], decision["not_candidates"]) == ("b", {"a": "not_owner"})


def test_figures_are_those_of_before_the_choice() -> None:
    scene, decisions = a_kept_scene("a")
    named(scene.fleet, "a").most = 0
    scene.fleet.regroup()
    scene.granted()
    scene.granted()
    figures = [one["candidates"][0]["figures"] for one in told(decisions, "c", 1000.0)]
    assert figures == [{"load": 0, "cost": 1.0}, {"load": 1, "cost": 2.0}]


def test_what_the_shadow_says_stands_beside() -> None:
    scene, decisions = a_kept_scene("a", "b", shadow=Last)
    scene.granted()
    (decision,) = told(decisions, "c", 1000.0)
    assert decision["chosen"] == "a"
    assert decision["shadow"] == {
        "policy": "random",
        "chosen": "b",
        "waits": 0.0,
        "affinity": "none",
        "found_characters": 0,
        "candidates": [{"replica": name, "figures": {"load": 0, "cost": 1.0}} for name in "ab"],
    }


async def test_a_request_that_is_held_is_told_of_and_what_became_of_it() -> None:
    scene, decisions = a_kept_scene("a", "b", make_policy=Patient)
    lease = scene.granted()
    await scene.ask(1)
    scene.clock.move(2.0)
    scene.give_back(lease)
    await scene.served()

    held, granted = told(decisions, "1", scene.clock())
    assert held["held_for"] == {"replica": "a", "seconds": 60.0}
    assert held["chosen"] is None
    assert (granted["held_for"], granted["chosen"], granted["waited"]) == (None, "a", 2.0)


def test_so_many_are_kept_and_the_oldest_goes() -> None:
    decisions = Decisions(50)
    for number in range(CAPACITY + 3):
        keep(decisions, number)
    assert len(decisions) == CAPACITY
    assert [told(decisions, name, 1000.0) for name in ("c0", "u2", "c2")] == [[], [], []]
    assert len(told(decisions, "c3", 1000.0)) == len(told(decisions, f"u{CAPACITY + 2}", 1000.0)) == 1
    assert len(decisions._by_id) == 2 * CAPACITY
    latest = [orjson.loads(one)["request_id"] for one in decisions.latest(2, 1000.0)]
    assert latest == [f"c{CAPACITY + 2}", f"c{CAPACITY + 1}"]


def test_of_an_id_that_comes_again_and_again_the_newest_are_told() -> None:
    """It may be the client's: all that it has would be more than can be written in one go."""
    decisions = Decisions(50)
    for number in range(CAPACITY + 3):
        keep(decisions, now=float(number), client_id="same", upstream_id="same")
    ages = [one["age"] for one in told(decisions, "same", CAPACITY + 2.0)]
    assert ages == list(range(MOST_OF_ONE - 1, -1, -1))
    for number in range(CAPACITY):
        keep(decisions, number)
    assert told(decisions, "same", 1000.0) == []


def test_large_ones_are_kept_within_their_bytes() -> None:
    decisions = Decisions(50)
    case = a_case()
    case.request.affinity = "x" * 20_000
    size = len(decisions_of_one(case))
    for _ in range(MOST_BYTES // size + 100):
        decisions.keep(Draft(case), case.view.candidates[0])
    kept = sum(map(len, decisions.latest(CAPACITY, 1000.0))) + len(decisions) * size
    assert 0.9 * MOST_BYTES < kept < 1.1 * MOST_BYTES
    assert sum(one.size for one in decisions._ring) == decisions._bytes <= MOST_BYTES

    huge = a_case(an_exchange(client_id="huge"))
    huge.request.affinity = "x" * MOST_BYTES
    decisions.keep(Draft(huge), huge.view.candidates[0])
    assert len(decisions) == len(decisions.of("huge", 1000.0)) == 1
    keep(decisions, 7)
    assert [len(decisions), len(decisions.of("c7", 1000.0)), decisions.of("huge", 1000.0)] == [1, 1, []]


def decisions_of_one(case: Case) -> bytes:
    """The document of one decision."""
    decisions = Decisions(50)
    decisions.keep(Draft(case), case.view.candidates[0])
    (document,) = decisions.of(case.exchange.client_id, 1000.0)
    return document


def test_ids_from_outside_are_cut_and_made_writable() -> None:
    decisions = Decisions(50)
    for given in ("x" * 5000, "\udcff"):
        keep(decisions, client_id=given)
        assert len(told(decisions, given, 1000.0)) == 1
    assert len(told(decisions, "x" * 5000, 1000.0)[0]["request_id"]) < 1000


def due(decisions: Decisions, now: float, count: int) -> int:
    """How many of so many decisions at this time are recorded."""
    recorded = 0
    for _ in range(count):
        if now >= decisions.due_at:
            keep(decisions, recorded, now=now)
            recorded += 1
    return recorded


def test_so_many_a_second_are_recorded() -> None:
    decisions, clock = Decisions(5), HandClock()
    assert due(decisions, clock(), 100) == 5
    clock.move(0.5)
    assert due(decisions, clock(), 100) == 2
    clock.move(3600.0)
    assert due(decisions, clock(), 100) == 5
    assert sum(due(decisions, clock() + 1 + step / 100, 1) for step in range(1000)) == pytest.approx(
        54, abs=1
    )


def test_low_traffic_is_always_recorded() -> None:
    decisions = Decisions(1)
    assert sum(due(decisions, 1000.0 + 2 * step, 1) for step in range(50)) == 50


def test_none_are_recorded_when_none_are_wanted() -> None:
    decisions = Decisions(0)
    assert due(decisions, 1000.0, 10) == 0
    decisions.reconfigure(3)
    assert due(decisions, 2000.0, 10) == 3


def test_when_none_are_wanted_any_more_none_follow() -> None:
    decisions = Decisions(5)
    keep(decisions)
    decisions.reconfigure(0)
    assert not decisions.follows(an_exchange(upstream_id="u0"))


def test_what_was_begun_is_recorded_to_its_end() -> None:
    """And pays for it: in the long run as many are recorded as may be."""
    scene, decisions = a_kept_scene("a", "b", "c", per_second=1)
    named(scene.fleet, "a").most = 0
    first = scene.granted()
    for _ in range(2):
        other = an_exchange(client_id="other", upstream_id="other", model="m1")
        assert scene.admission.grant(a_request(), scene.pool, other, [])
    again = scene.granted([first.replica])
    assert [one["chosen"] for one in told(decisions, "c", 1000.0)] == ["a", again.replica.name]
    assert told(decisions, "other", 1000.0) == []

    assert decisions.due_at == pytest.approx(1002.0)


def test_so_many_of_one_request_are_recorded() -> None:
    decisions, exchange = Decisions(50), an_exchange(client_id="c0", upstream_id="u0")
    for _ in range(MOST_OF_ONE):
        keep(decisions)
    assert not decisions.follows(exchange)
    assert not decisions.follows(an_exchange(upstream_id="u1"))


def test_a_large_fleet_is_told_of_in_part_and_counts_as_several() -> None:
    decisions = Decisions(100)
    assert decisions.due_at <= 1000.0
    case = a_case(replicas=10 * MOST_REPLICAS)
    chosen = case.view.candidates[-1]
    decisions.keep(Draft(case), chosen)

    (decision,) = told(decisions, "c", 1000.0)
    assert len(decision["candidates"]) == MOST_REPLICAS
    assert decision["candidates"][0]["replica"] == chosen.name
    assert decision["candidates_left_out"] == 9 * MOST_REPLICAS
    assert due(decisions, 1000.0, 100) == 90


def test_what_a_large_fleet_has_besides_candidates_is_told_of_in_part() -> None:
    case = a_case(replicas=MOST_REPLICAS + 5)
    few = View(case.view.replicas, case.view.replicas[:1], 1000.0, case.view.random)
    decisions = Decisions(5)
    draft = Draft(Case(case.name, case.policy, None, case.request, case.exchange, few, (), None))
    decisions.keep(draft, few.candidates[0])
    (decision,) = told(decisions, "c", 1000.0)
    assert (len(decision["not_candidates"]), decision["not_candidates_left_out"]) == (MOST_REPLICAS, 4)


def test_a_hold_is_kept_without_a_choice() -> None:
    decisions, case = Decisions(5), a_case()
    decisions.keep(Draft(case), Wait(case.view.candidates[1], 1.5))
    (decision,) = told(decisions, "c", 1000.0)
    assert (decision["chosen"], decision["held_for"]) == (None, {"replica": "r1", "seconds": 1.5})


# Written out later


def test_decisions_are_written_out_together_a_little_later() -> None:
    decisions, later = Decisions(50), HandTimer()
    decisions.later = later
    keep(decisions, 0)
    keep(decisions, 1)
    assert [seconds for seconds, _ in later.due] == [WRITE_AFTER]
    later.fire()
    assert len(decisions) == 2
    keep(decisions, 2)
    assert len(later.due) == 1


LOOKS: dict[str, Callable[[Decisions], object]] = {
    "length": len,
    "one": lambda decisions: len(decisions.of("c0", 1000.0)),
    "latest": lambda decisions: len(decisions.latest(9, 1000.0)),
    "news": lambda decisions: len(decisions.news()),
    "follows": lambda decisions: int(decisions.follows(an_exchange(upstream_id="u0"))),
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_whoever_looks_sees_what_is_still_to_be_written(look: Callable[[Decisions], object]) -> None:
    decisions, later = Decisions(50), HandTimer()
    decisions.later = later
    decisions.share(1)
    keep(decisions, 0)
    assert look(decisions) == 1
    later.fire()
    assert len(decisions) == 1


def test_a_decision_tells_of_its_own_attempt() -> None:
    """Not of the next one, which may find the request elsewhere before it is written."""
    decisions, later = Decisions(50), HandTimer()
    decisions.later = later
    case = a_case()
    case.request.affinity = "hit"
    decisions.keep(Draft(case), case.view.candidates[0])
    case.request.affinity = "miss"
    (decision,) = told(decisions, "c", 1000.0)
    assert decision["affinity"] == "hit"


# Workers


@pytest.mark.parametrize(
    ("per_second", "workers", "expected"), [(8, 2, 44), (8, 4, 22), (1, 2, 6), (1, 4, 3)]
)
def test_each_of_several_workers_records_its_part(per_second: int, workers: int, expected: int) -> None:
    decisions = Decisions(per_second)
    decisions.share(workers)
    recorded = sum(due(decisions, 1000.0 + step / 100, 1) for step in range(1000))
    assert recorded == pytest.approx(expected, abs=1)
    decisions.reconfigure(0)
    assert due(decisions, 5000.0, 10) == 0


def test_who_answers_for_all_knows_what_the_workers_have_recorded() -> None:
    keeper, workers = Decisions(50), [Decisions(50), Decisions(50)]
    for number, worker in enumerate(workers):
        worker.share(2)
        keep(worker, number, now=1000.0 + number)
        keeper.hear(worker.news())
        assert worker.news() == ()
    for number in range(2):
        assert told(keeper, f"c{number}", 1003.0) == told(workers[number], f"c{number}", 1003.0)
        assert told(keeper, f"u{number}", 1003.0)[0]["age"] == 3.0 - number
    assert [orjson.loads(one)["upstream_id"] for one in keeper.latest(9, 1003.0)] == ["u1", "u0"]
    assert len(keeper) == 2
    assert keeper.news() == ()


def test_what_is_heard_is_bounded_like_the_rest() -> None:
    keeper, worker = Decisions(50), Decisions(10**6)
    worker.share(1)
    for number in range(3):
        keep(worker, number)
    news = worker.news()
    for _ in range(CAPACITY):
        keeper.hear(news)
    assert len(keeper) == CAPACITY
