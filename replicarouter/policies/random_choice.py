"""A random candidate, as often as its share says: the baseline the others have to beat."""

from replicarouter.fleet.replica import Replica
from replicarouter.policies.base import Forgetful, View
from replicarouter.policies.crowd import Crowd
from replicarouter.protocol.request import InferenceRequest


class RandomChoice(Forgetful):
    """Keeps nothing."""

    def __init__(self) -> None:
        self._crowd = Crowd()

    def pick(self, request: InferenceRequest, view: View) -> Replica:  # noqa: ARG002
        """Draw one candidate, by share."""
        return view.random.choices(view.candidates, self._crowd.shares(view))[0]
