"""The better of two random candidates (M. Mitzenmacher, "The power of two choices", 2001)."""

from replicarouter.fleet.replica import Replica
from replicarouter.policies.base import Forgetful, View
from replicarouter.protocol.request import InferenceRequest


class PowerOfTwo(Forgetful):
    """Nearly as even as looking at all, without everyone running to the same least one."""

    def pick(self, request: InferenceRequest, view: View) -> Replica:  # noqa: ARG002
        """Draw two different candidates and choose the one with less load per share."""
        candidates = view.candidates
        count = len(candidates)
        if count == 1:
            return candidates[0]
        first = int(view.random.random() * count)
        second = int(view.random.random() * (count - 1))
        if second >= first:
            second += 1
        one, other = candidates[first], candidates[second]
        return other if other.cost(view.now) < one.cost(view.now) else one
