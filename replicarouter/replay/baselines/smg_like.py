"""The rule of SMG's `cache_aware` policy: stay where much of the prompt is, unless it is far too busy."""

from collections.abc import Sequence
from typing import ClassVar

from replicarouter.fleet.replica import Replica
from replicarouter.policies.base import HIT, NEW, SPILL, Ending, Figures, Forgetful, View
from replicarouter.protocol.request import InferenceRequest, Needs
from replicarouter.replay.baselines.memory import Memory, Turnstile

CACHE_THRESHOLD = 0.3
"""Matched share of a prompt above which its holder is worth it (SMG's `cache_threshold`)."""

BALANCE_RELATIVE, BALANCE_ABSOLUTE = 1.5, 64
"""A replica with more than so many times the mean, and so many requests more, is too busy (SMG's
`balance_rel_threshold` and `balance_abs_threshold`, as its command line has them)."""


class SmgLike(Forgetful):
    """Load is requests in flight. A holder that is too busy, and a prompt that nobody holds, leave it to
    the least loaded; either way the chosen one holds the prompt from now on."""

    needs: ClassVar[Needs] = Needs.BLOCKS
    learns: ClassVar[bool] = True

    def __init__(self) -> None:
        self._memory = Memory()
        self._turnstile = Turnstile()

    def pick(self, request: InferenceRequest, view: View) -> Replica:
        """Choose the holder of the longest beginning, the least loaded of equal ones, or the least loaded."""
        candidates = view.candidates
        loads = [replica.load(view.now) for replica in candidates]
        holder = self._holder(request, candidates, loads)
        if holder is None:
            request.affinity = NEW
            return candidates[self._turnstile.least(loads)]
        mean = sum(loads) / len(loads)
        load = loads[holder]
        if load > BALANCE_RELATIVE * mean and load > mean + BALANCE_ABSOLUTE:
            request.affinity = SPILL
            return candidates[self._turnstile.least(loads)]
        request.affinity = HIT
        return candidates[holder]

    def explain(self, request: InferenceRequest, view: View) -> Figures:
        """Load and matched blocks."""
        matches = self._memory.leading(request)
        return {
            one.name: {"load": one.load(view.now), "matched_blocks": matches.get(one.row, 0)}
            for one in view.candidates
        }

    def sent(self, request: InferenceRequest, replica: Replica, now: float) -> None:  # noqa: ARG002
        """It holds the prompt from now on."""
        self._memory.sent(request, replica)

    def finished(self, request: InferenceRequest, replica: Replica, ending: Ending, now: float) -> None:
        """Nothing to learn."""

    def removed(self, replica: Replica) -> None:
        """Forget what it holds."""
        self._memory.forget(replica)

    def _holder(
        self, request: InferenceRequest, candidates: Sequence[Replica], loads: Sequence[float]
    ) -> int | None:
        matches = self._memory.leading(request)
        if not matches:
            return None
        best: int | None = None
        rank = (CACHE_THRESHOLD * len(request.blocks), 0.0)
        for place, replica in enumerate(candidates):
            matched = matches.get(replica.row, 0)
            if matched > rank[0] or (best is not None and matched == rank[0] and -loads[place] > rank[1]):
                best, rank = place, (matched, -loads[place])
        return best
