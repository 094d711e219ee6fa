"""What a worker tells the keeper of replicas, and what it keeps to itself."""

from typing import Any, cast

import pytest

from replicarouter.fleet.lifecycle import Duty
from replicarouter.fleet.replica import Replica
from replicarouter.workers.bus import Bus
from replicarouter.workers.messenger import Messenger
from tests.scene import a_replica


class Wire:
    """Stands where a bus does, and keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, ...]] = []

    def send(self, *message: Any) -> None:
        self.sent.append(message)


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def messenger(wire: Wire) -> Messenger:
    return Messenger(cast(Bus, wire))


@pytest.fixture
def replica() -> Replica:
    return a_replica()


def test_answers_are_told_only_where_something_is_held_against_the_replica(
    messenger: Messenger, wire: Wire, replica: Replica
) -> None:
    messenger.answered(replica)
    assert wire.sent == []
    replica.on_record = True
    messenger.answered(replica)
    assert wire.sent == [("answered", "a", replica.row)]


def test_an_answer_after_a_failure_of_this_worker_is_told(
    messenger: Messenger, wire: Wire, replica: Replica
) -> None:
    messenger.failed(replica, 5.0, "http_500", leased_at=4.0)
    messenger.answered(replica)
    assert wire.sent == [("failed", "a", replica.row, "http_500", 4.0), ("answered", "a", replica.row)]


def test_all_else_is_told(messenger: Messenger, wire: Wire, replica: Replica) -> None:
    messenger.busy(replica, 5.0, 2.0)
    messenger.leaving(replica, 5.0)
    messenger.refused(replica)
    assert [message[0] for message in wire.sent] == ["busy", "leaving", "refused"]


def test_that_nothing_runs_is_told_only_of_one_that_is_to_leave(
    messenger: Messenger, wire: Wire, replica: Replica
) -> None:
    messenger.idle(replica)
    assert wire.sent == []
    replica.duty = Duty.REMOVED
    messenger.idle(replica)
    assert wire.sent == [("idle", "a", replica.row)]
