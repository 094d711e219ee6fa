"""Fewest outstanding requests per share, which is the weight once a replica has started."""

from replicarouter.fleet.replica import Replica
from replicarouter.policies.base import Forgetful, View
from replicarouter.protocol.request import InferenceRequest


class LeastOutstanding(Forgetful):
    """Equal replicas take turns: the search starts behind the last choice."""

    def __init__(self) -> None:
        self._start = 0

    def pick(self, request: InferenceRequest, view: View) -> Replica:  # noqa: ARG002
        """Choose the candidate with the least load per share."""
        candidates = view.candidates
        count = len(candidates)
        now = view.now
        start = self._start
        least = float("inf")
        chosen = 0
        for step in range(count):
            index = (start + step) % count
            replica = candidates[index]
            load = replica.cost(now)
            if load < least:
                chosen, least = index, load
        self._start = chosen + 1
        return candidates[chosen]
