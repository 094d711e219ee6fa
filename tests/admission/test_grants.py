"""What is granted where another worker may be faster. How policies are asked is in test_controller."""

from collections.abc import Iterator
from random import Random

import pytest

from replicarouter.admission.controller import Admission
from replicarouter.admission.grants import QueueRules
from replicarouter.admission.lease import Lease
from replicarouter.commons.memory import Commons
from replicarouter.commons.seat import Seat
from replicarouter.fleet.common_ledger import WorkerLedger
from replicarouter.fleet.lifecycle import Event
from replicarouter.fleet.registry import Fleet
from replicarouter.fleet.replica import Replica
from replicarouter.policies.base import View
from replicarouter.protocol.request import InferenceRequest
from replicarouter.settings import AdmissionSettings
from tests.admission.rig import Stubborn, a_plan, desks_for
from tests.scene import HandClock, a_request, an_exchange, named, replica_settings


@pytest.fixture
def commons() -> Iterator[Commons]:
    made = Commons(2)
    yield made
    made.close()


class Outrun(Stubborn):
    """Chooses the first candidate; meanwhile another worker takes it, so often."""

    def __init__(self, faster: Seat, times: int) -> None:
        super().__init__()
        self._faster = faster
        self._times = times

    def pick(self, request: InferenceRequest, view: View) -> Replica:
        super().pick(request, view)
        first = view.candidates[0]
        if self._times:
            self._times -= 1
            assert self._faster.lease(first.row, first.limit)
        return first


def an_admission(commons: Commons, times: int) -> tuple[Admission, Fleet, Outrun]:
    fleet = Fleet((), WorkerLedger(commons.seat(0)), most=1)
    for name in "abc":
        replica = fleet.join(replica_settings(name), "file", commons.add_row())
        fleet.list_models(replica, [{"id": "m1"}])
        fleet.tell(replica, Event.PASSED, "said so")
    policy = Outrun(commons.seat(1), times)
    admission = Admission(
        fleet.ledger,
        desks_for(a_plan(lambda: policy)),
        rules=QueueRules(100, 0.0),
        clock=HandClock(),
        random=Random(1),
        idle=fleet.idle,
    )
    return admission, fleet, policy


@pytest.mark.parametrize(("times", "got"), [(0, "a"), (1, "b"), (2, "c")])
def test_who_was_outrun_is_asked_again_among_the_rest(commons: Commons, times: int, got: str) -> None:
    admission, fleet, policy = an_admission(commons, times)
    lease = admission.grant(a_request(), fleet.pool_for("m1"), an_exchange(model="m1"), [])
    assert isinstance(lease, Lease)
    assert lease.replica is named(fleet, got)
    assert policy.seen == [list("abc")[count:] for count in range(times + 1)]
    assert policy.told == [f"sent {got}"]
    assert sum(replica.outstanding for replica in fleet) == times + 1


def test_who_was_outrun_everywhere_has_to_wait(commons: Commons) -> None:
    admission, fleet, _ = an_admission(commons, 3)

    assert admission.grant(a_request(), fleet.pool_for("m1"), an_exchange(model="m1"), []) is None
    assert [replica.outstanding for replica in fleet] == [1, 1, 1]


def test_rules_are_those_of_the_settings() -> None:
    rules = QueueRules.of(AdmissionSettings(max_queued=7, queue_timeout=3.0))

    assert (rules.requests, rules.seconds, rules.most_held) == (7, 3.0, 1.5)
