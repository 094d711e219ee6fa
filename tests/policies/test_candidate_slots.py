"""Numbers by slot, in the order of the candidates."""

import itertools

from replicarouter.fleet.replica import Replica
from replicarouter.policies.candidate_slots import LOOKUPS, CandidateSlots
from tests.scene import a_replica


def slots_and_replicas(count: int = 4) -> tuple[CandidateSlots, list[Replica]]:
    serial = itertools.count()
    return CandidateSlots(lambda _: next(serial)), [a_replica(f"r{number}") for number in range(count)]


def test_numbers_come_in_the_order_of_the_candidates() -> None:
    slots, (a, b, c, d) = slots_and_replicas()
    slots.follow([a, b, c, d])
    numbers = [10.0, 11.0, 12.0, 13.0]

    slots.follow([d, b])
    assert list(slots.read(numbers)) == [13.0, 11.0]
    slots.follow([c])
    assert list(slots.read(numbers)) == [12.0]


def test_a_slot_is_found_where_it_stands_however_often_it_is_asked_for() -> None:
    slots, (a, b, c, d) = slots_and_replicas()
    slots.follow([a, b, c, d])
    slots.follow([d, b])

    for _ in range(2 * LOOKUPS):
        assert [slots.place(number) for number in range(4)] == [None, 1, None, 0]


def test_a_replica_keeps_its_slot_until_it_leaves() -> None:
    slots, (a, b, *_) = slots_and_replicas()
    slots.follow([a, b])
    slots.follow([b])
    assert slots.place(1) == 0

    slots.close(b)
    slots.follow([b])
    assert slots.place(1) is None
    assert slots.place(2) == 0
