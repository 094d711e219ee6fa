"""Replicas of a replay and their counts."""

import pytest

from replicarouter.engines.base import EngineReading
from replicarouter.exchange import Stage
from replicarouter.fleet.ledger import ROW
from replicarouter.fleet.lifecycle import State
from replicarouter.replay.fleet import ReplayFleet, as_request
from tests.replay.scene import BLOCK, turn


def test_counts_move_as_a_lease_moves_them() -> None:
    fleet = ReplayFleet(2)
    one, other = fleet.replicas
    fleet.take(one)
    assert (one.outstanding, one.count(Stage.SENT), one.with_engine) == (1, 1, 1)
    fleet.stream(one)
    assert (one.outstanding, one.count(Stage.SENT), one.count(Stage.STREAMING)) == (1, 0, 1)
    fleet.release(one)
    assert list(fleet.ledger.cells) == [0] * 2 * ROW
    assert other.outstanding == 0


def test_all_replicas_are_ready_and_have_names_of_their_own() -> None:
    fleet = ReplayFleet(12)
    assert {replica.state for replica in fleet.replicas} == {State.READY}
    assert len({replica.name for replica in fleet.replicas}) == 12


def test_without_a_limit_all_replicas_stay_candidates() -> None:
    fleet = ReplayFleet(3)
    for _ in range(1000):
        fleet.take(fleet.replicas[1])
    assert list(fleet.candidates) == fleet.replicas


@pytest.mark.parametrize("seed", range(5))
def test_candidates_are_exactly_those_with_room(seed: int) -> None:
    fleet = ReplayFleet(7, most=2)
    steps = [(step * (seed + 3)) % 7 for step in range(200)]
    for step, number in enumerate(steps):
        replica = fleet.replicas[number]
        if replica.has_room and step % 3:
            fleet.take(replica)
        elif replica.outstanding:
            fleet.stream(replica)
            fleet.release(replica)
        assert sorted(one.row for one in fleet.candidates) == [
            one.row for one in fleet.replicas if one.has_room
        ]


def test_a_reading_is_kept_as_the_router_keeps_it() -> None:
    fleet = ReplayFleet(1)
    fleet.read(fleet.replicas[0], EngineReading(running=3, waiting=1, kv_capacity=64.0), 5.0)
    reading = fleet.replicas[0].reading
    assert reading is not None
    assert (reading.at, reading.engine.kv_capacity) == (5.0, 64.0)


def test_a_request_carries_the_keys_of_its_turn() -> None:
    request = as_request(turn(1, 2, session=9), (1, 2), BLOCK)
    assert (request.session, request.head, request.blocks) == (9, 9, (1, 2))
    assert (request.block_characters, request.characters) == (64, 128)
    assert request.stream
