"""A random candidate, as often as its share says: the baseline the others have to beat."""

from replicarouter.fleet.replica import Replica
from replicarouter.policies.base import Forgetful, View
from replicarouter.protocol.request import InferenceRequest


class RandomChoice(Forgetful):
    """Keeps nothing."""

    def pick(self, request: InferenceRequest, view: View) -> Replica:  # noqa: ARG002
        """Draw one candidate, by share."""
        candidates = view.candidates
        shares = [replica.share(view.now) for replica in candidates]
        return view.random.choices(candidates, shares)[0]
