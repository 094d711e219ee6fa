"""Fewest outstanding requests per share, which is the weight once a replica has started."""

from replicarouter.fleet.replica import Replica
from replicarouter.policies.base import Forgetful, View
from replicarouter.policies.crowd import Crowd
from replicarouter.protocol.request import InferenceRequest


class LeastOutstanding(Forgetful):
    """Equal replicas take turns: the search starts behind the last choice."""

    def __init__(self) -> None:
        self._crowd = Crowd()
        self._start = 0

    def pick(self, request: InferenceRequest, view: View) -> Replica:  # noqa: ARG002
        """Choose the candidate with the least load per share."""
        costs = self._crowd.costs(view)
        least = min(costs)
        try:
            chosen = costs.index(least, self._start)
        except ValueError:  # It stands before the last choice.
            chosen = costs.index(least)
        self._start = chosen + 1
        return view.candidates[chosen]
