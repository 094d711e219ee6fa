"""Who made which response."""

from replicarouter.admission.owners import Owners
from replicarouter.fleet.ledger import Ledger
from replicarouter.fleet.replica import Replica
from replicarouter.settings import ReplicaSettings


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
