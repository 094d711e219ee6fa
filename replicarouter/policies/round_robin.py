"""Smooth weighted round-robin: in turn, each as often as its share says, never in bursts."""

from replicarouter.fleet.replica import Replica
from replicarouter.policies.base import Forgetful, View
from replicarouter.protocol.request import InferenceRequest


class RoundRobin(Forgetful):
    """The algorithm nginx documents as smooth weighted balancing: everyone earns its share each
    turn, the richest is chosen and pays the sum of all shares."""

    def __init__(self) -> None:
        self._earned: dict[Replica, float] = {}

    def pick(self, request: InferenceRequest, view: View) -> Replica:  # noqa: ARG002
        """Choose the candidate that has earned most."""
        earned = self._earned
        now = view.now
        total = 0.0
        best = view.candidates[0]
        most = float("-inf")
        for replica in view.candidates:
            share = replica.share(now)
            total += share
            amount = earned[replica] = earned.get(replica, 0.0) + share
            if amount > most:
                best, most = replica, amount
        earned[best] -= total
        return best

    def removed(self, replica: Replica) -> None:
        """Forget what the replica had earned."""
        self._earned.pop(replica, None)
