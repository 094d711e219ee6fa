"""Fewest outstanding requests per share, which is the weight once a replica has started."""

from replicarouter.fleet.replica import Replica
from replicarouter.policies.base import Figures, Forgetful, View
from replicarouter.policies.crowd import Crowd, first_least
from replicarouter.protocol.request import InferenceRequest


class LeastOutstanding(Forgetful):
    """Equal replicas take turns: the search starts behind the last choice."""

    def __init__(self) -> None:
        self._crowd = Crowd()
        self._start = 0

    def pick(self, request: InferenceRequest, view: View) -> Replica:  # noqa: ARG002
        """Choose the candidate with the least load per share."""
        chosen = first_least(self._crowd.costs(view), self._start)
        self._start = chosen + 1
        return view.candidates[chosen]

    def explain(self, request: InferenceRequest, view: View) -> Figures:  # noqa: ARG002
        """The load of each, and its load per share with one more request."""
        return self._crowd.figures(view)

    def share(self, ahead: int, *, obeyed: bool = True) -> None:  # noqa: ARG002
        """Let the turns of equal replicas begin there: two workers that choose at the same moment choose
        different ones."""
        self._start = ahead
