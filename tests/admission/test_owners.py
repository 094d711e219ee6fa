"""Who made which response."""

import asyncio
from collections.abc import Sequence

import pytest

from replicarouter.admission.owners import Made, Owners
from replicarouter.errors import ResponseNotFound
from replicarouter.fleet.ledger import Ledger
from replicarouter.fleet.replica import Replica
from replicarouter.settings import ReplicaSettings
from tests.scene import a_fleet, named


def a_replica(port: int) -> Replica:
    settings = ReplicaSettings.model_validate({"url": f"http://127.0.0.1:{port}"})
    return Replica.join(settings, Ledger(), 0)


def test_the_replica_that_made_a_response_is_found() -> None:
    owners, replica, other = Owners(), a_replica(1), a_replica(2)
    owners.learn("resp_1", replica)
    owners.learn("resp_2", other)
    assert owners.find("resp_1") is replica
    assert owners.find("resp_2") is other
    assert owners.find("resp_3") is None


def test_the_last_who_made_it_counts() -> None:
    owners, replica, other = Owners(), a_replica(1), a_replica(2)
    owners.learn("resp_1", replica)
    owners.learn("resp_1", other)
    assert owners.find("resp_1") is other
    assert len(owners) == 1


def test_memory_is_bounded_and_what_is_used_stays() -> None:
    owners, replica = Owners(capacity=3), a_replica(1)
    for number in range(3):
        owners.learn(f"resp_{number}", replica)
    assert owners.find("resp_0") is replica
    owners.learn("resp_3", replica)
    assert len(owners) == 3
    assert owners.find("resp_1") is None
    assert owners.find("resp_0") is replica


def test_what_was_learned_since_is_told_once_and_only_where_it_is_shared() -> None:
    alone, shared, replica = Owners(), Owners(), a_fleet("a").replicas[0]
    shared.share()
    for owners in (alone, shared):
        owners.learn("resp_1", replica)
        owners.learn("resp_2", replica)
    assert alone.news() == ()
    assert shared.news() == [("resp_1", "a"), ("resp_2", "a")]
    assert shared.news() == ()
    assert alone.all() == [("resp_1", "a"), ("resp_2", "a")]


def test_it_is_said_when_there_are_news() -> None:
    stirred: list[str] = []
    owners, fleet = Owners(), a_fleet("a")
    owners.share(stir=lambda: stirred.append("stirred"))
    owners.hear([("resp_1", "a")], fleet)
    assert stirred == []
    owners.learn("resp_2", named(fleet, "a"))
    assert stirred == ["stirred"]


def test_who_has_heard_knows_who_made_it_and_does_not_tell_it_again() -> None:
    owners, fleet = Owners(capacity=3), a_fleet("a", "b")
    owners.share()
    owners.hear([("resp_1", "a"), ("resp_2", "b"), ("resp_3", "gone")], fleet)
    assert owners.find("resp_1") is named(fleet, "a")
    assert owners.find("resp_2") is named(fleet, "b")
    assert owners.find("resp_3") is None
    with pytest.raises(ResponseNotFound, match="gone"):
        owners.destination(fleet, "resp_3", None)
    assert owners.maker("resp_3") == [("resp_3", "gone")]
    assert owners.news() == ()
    owners.hear([(f"more_{number}", "a") for number in range(9)], fleet)
    assert len(owners) == 3


def test_news_that_nobody_takes_are_bounded() -> None:
    owners, replica = Owners(capacity=3), a_replica(1)
    owners.share()
    for number in range(9):
        owners.learn(f"resp_{number}", replica)
    assert len(owners.news()) == 3


async def test_for_a_follow_up_that_is_faster_than_the_news_the_others_are_asked() -> None:
    owners, other, fleet = Owners(), Owners(), a_fleet("a")

    async def ask(response_id: str) -> Sequence[Made]:
        return other.maker(response_id)

    owners.share(ask)
    other.learn("resp_1", named(fleet, "a"))
    await owners.hear_of("resp_1", fleet)
    assert owners.find("resp_1") is named(fleet, "a")
    assert owners.news() == ()


def test_what_is_known_or_cannot_come_is_not_waited_for() -> None:
    alone, shared, replica = Owners(), Owners(), a_replica(1)
    shared.share()
    shared.learn("resp_1", replica)
    for owners, response_id in ((alone, "resp_9"), (shared, "resp_1")):
        with pytest.raises(StopIteration):
            owners.hear_of(response_id, a_fleet("a")).send(None)


async def test_what_nobody_knows_stays_unknown() -> None:
    owners, fleet = Owners(), a_fleet("a")
    asked = []

    async def ask(response_id: str) -> Sequence[Made]:
        asked.append(response_id)
        return ()

    owners.share(ask)
    await asyncio.gather(*(owners.hear_of("resp_9", fleet) for _ in range(2)))
    assert owners.find("resp_9") is None
    assert asked == ["resp_9", "resp_9"]
    assert len(owners) == 0
