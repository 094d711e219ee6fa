"""Smooth weighted round-robin: in turn, each as often as its share says, never in bursts."""

from collections.abc import Sequence
from itertools import repeat
from operator import add

from replicarouter.fleet.replica import Replica
from replicarouter.policies.base import Forgetful, View
from replicarouter.policies.crowd import Crowd
from replicarouter.protocol.request import InferenceRequest


class RoundRobin(Forgetful):
    """The algorithm nginx documents as smooth weighted balancing: everyone earns its share each
    turn, the richest is chosen and pays the sum of all shares."""

    def __init__(self) -> None:
        self._crowd = Crowd()
        self._earned: list[float] = []
        self._earners: Sequence[Replica] = ()
        self._away: dict[Replica, float] = {}
        self._ahead = 0

    def pick(self, request: InferenceRequest, view: View) -> Replica:  # noqa: ARG002
        """Choose the candidate that has earned most."""
        candidates = view.candidates
        shares = self._crowd.shares(view)
        if candidates != self._earners:
            self._settle()
            self._earners = [*candidates]
            self._earned = [*map(self._away.get, candidates, repeat(0.0))]
            self._pass_over(shares)
        self._earned = earned = [*map(add, self._earned, shares)]
        best = earned.index(max(earned))
        earned[best] -= sum(shares)
        return candidates[best]

    def removed(self, replica: Replica) -> None:
        """Forget what the replica had earned."""
        self._settle()
        self._earners, self._earned = (), []
        self._away.pop(replica, None)

    def share(self, ahead: int, *, obeyed: bool = True) -> None:  # noqa: ARG002
        """Pass over so many turns: workers that begin at one place would give the first replicas twice as
        much, and the last ones nothing."""
        self._ahead = ahead

    def _pass_over(self, shares: Sequence[float]) -> None:
        """Let the turns go by that are another worker's to begin with."""
        total = sum(shares)
        for _ in range(self._ahead):
            self._earned = earned = [*map(add, self._earned, shares)]
            earned[earned.index(max(earned))] -= total
        self._ahead = 0

    def _settle(self) -> None:
        """Note what each has earned so far, for when it is a candidate again."""
        self._away.update(zip(self._earners, self._earned, strict=True))
