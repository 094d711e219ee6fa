"""The rule llm-d ships since August 2026: stay with the prompt's holders until they are saturated."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from replicarouter.fleet.replica import Replica
from replicarouter.policies.base import HIT, NEW, SPILL, Ending, Figures, Forgetful, View
from replicarouter.protocol.request import InferenceRequest, Needs
from replicarouter.replay.baselines.memory import Memory, Turnstile, block_tokens, prompt_tokens

AFFINITY = 0.80
"""Matched share of a prompt from which on a replica counts as its holder."""

LONGEST_PENALTY = 18.0
"""Seconds of estimated TTFT that staying with a holder may cost (`maxTTFTPenaltyMs` 18,000)."""

PEAK_PREFILL = 15_928.0
"""Tokens a second that a replica computes of waiting prompts (`peakPrefillThroughput`: Qwen3-32B on two
H100). The simulated H200 of the default profile has 17,241: near enough to be left."""

_LEARNING = 0.02
"""Weight of each answer in the mean length of answers."""


@dataclass(slots=True)
class _Load:
    """Tokens at one replica: uncached ones before their first token, and answers expected."""

    prefill: float = 0.0
    decode: float = 0.0


@dataclass(slots=True)
class _Share:
    """What one request adds to the load of its replica."""

    prefill: float
    decode: float


class LlmDLike(Forgetful):
    """Filter: the replicas that hold four fifths of the prompt, those aside whose queued uncached tokens
    would take longer than `LONGEST_PENALTY` to compute; all replicas when none is left. Score: the fewest
    tokens in flight with this request's uncached ones, which count until the first token; the expected
    answer counts until its end, at the mean length of answers so far. A prompt that nobody holds goes, of
    the replicas with equal tokens, to the one that had such a prompt longest ago.
    """

    needs: ClassVar[Needs] = Needs.BLOCKS
    learns: ClassVar[bool] = True

    def __init__(self) -> None:
        self._memory = Memory()
        self._turnstile = Turnstile()
        self._loads: dict[Replica, _Load] = {}
        self._shares: dict[InferenceRequest, _Share] = {}
        self._cold_at: dict[Replica, int] = {}
        self._cold = 0
        self._mean_answer = 0.0

    def pick(self, request: InferenceRequest, view: View) -> Replica:
        """Choose the holder with the fewest tokens in flight, or the replica with the fewest."""
        candidates = view.candidates
        matches = self._memory.leading(request)
        if not matches:
            request.affinity = NEW
            return min(candidates, key=self._cold_rank)
        enough = AFFINITY * len(request.blocks)
        holders = [one for one in candidates if matches.get(one.row, -1) >= enough]
        staying = [one for one in holders if self._penalty(one) <= LONGEST_PENALTY]
        request.affinity = HIT if staying else (SPILL if holders else NEW)
        among: Sequence[Replica] = staying or candidates
        size = block_tokens(request)
        costs = [self._tokens(one) - size * matches.get(one.row, 0) for one in among]
        return among[self._turnstile.least(costs)]

    def explain(self, request: InferenceRequest, view: View) -> Figures:
        """Matched blocks, the penalty of staying in seconds, tokens in flight."""
        matches = self._memory.leading(request)
        return {
            one.name: {
                "matched_blocks": matches.get(one.row, 0),
                "penalty_seconds": self._penalty(one),
                "tokens": self._tokens(one),
            }
            for one in view.candidates
        }

    def sent(self, request: InferenceRequest, replica: Replica, now: float) -> None:  # noqa: ARG002
        """Its tokens queue there, those aside that should be in the cache."""
        matched = self._memory.leading(request).get(replica.row, 0)
        uncached = max(0, prompt_tokens(request) - matched * block_tokens(request))
        share = self._shares[request] = _Share(uncached, self._mean_answer)
        load = self._loads.setdefault(replica, _Load())
        load.prefill += share.prefill
        load.decode += share.decode
        if not matched:
            self._cold += 1
            self._cold_at[replica] = self._cold
        self._memory.sent(request, replica)

    def began(self, request: InferenceRequest, replica: Replica, now: float) -> None:  # noqa: ARG002
        """Its prompt has been computed: nothing of it queues any more."""
        share, load = self._shares.get(request), self._loads.get(replica)
        if share is not None and load is not None:
            load.prefill -= share.prefill
            share.prefill = 0.0

    def finished(self, request: InferenceRequest, replica: Replica, ending: Ending, now: float) -> None:
        """Its answer is expected no more, nor is what it may still have had in the queue."""
        self.began(request, replica, now)
        share, load = self._shares.pop(request, None), self._loads.get(replica)
        if share is not None and load is not None:
            load.decode -= share.decode
        if ending.completion_tokens:
            weight = _LEARNING if self._mean_answer else 1.0
            self._mean_answer += weight * (ending.completion_tokens - self._mean_answer)

    def removed(self, replica: Replica) -> None:
        """Forget it."""
        self._memory.forget(replica)
        self._loads.pop(replica, None)
        self._cold_at.pop(replica, None)

    def _tokens(self, replica: Replica) -> float:
        load = self._loads.get(replica)
        return load.prefill + load.decode if load is not None else 0.0

    def _penalty(self, replica: Replica) -> float:
        load = self._loads.get(replica)
        return load.prefill / PEAK_PREFILL if load is not None else 0.0

    def _cold_rank(self, replica: Replica) -> tuple[float, int]:
        return round(self._tokens(replica), 3), self._cold_at.get(replica, 0)
