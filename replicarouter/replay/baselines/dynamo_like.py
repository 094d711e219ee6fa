"""The cost rule of Dynamo's KV router: blocks to compute there plus blocks in use there, the least wins."""

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

from replicarouter.fleet.replica import Replica
from replicarouter.policies.base import HIT, NEW, Ending, Figures, Forgetful, View
from replicarouter.protocol.request import InferenceRequest, Needs
from replicarouter.replay.baselines.memory import Holders, Memory, Turnstile, block_tokens, prompt_tokens

PREFILL_LOAD_SCALE = 1.0
"""Weight of blocks to compute against blocks in use (Dynamo 1.6's default)."""


class _Active:
    """The blocks of prompts that one replica is serving, each counted once."""

    __slots__ = ("decode", "prefill", "users")

    def __init__(self) -> None:
        self.users: Counter[int] = Counter()
        self.decode = 0
        self.prefill = 0.0


class DynamoLike(Forgetful):
    """cost = max(blocks waiting to be computed + the prompt's - those it holds, 0) + blocks in use with
    the prompt's. Blocks that several requests share are in use once. No temperature: the least wins.
    """

    needs: ClassVar[Needs] = Needs.BLOCKS
    learns: ClassVar[bool] = True

    def __init__(self) -> None:
        self._memory = Memory()
        self._in_use = Holders()
        self._turnstile = Turnstile()
        self._active: dict[Replica, _Active] = {}
        self._uncached: dict[InferenceRequest, float] = {}

    def pick(self, request: InferenceRequest, view: View) -> Replica:
        """Choose the least costly replica."""
        cached = self._memory.leading(request)
        costs = self._costs(request, view.candidates, cached)
        replica = view.candidates[self._turnstile.least(costs)]
        request.affinity = HIT if cached.get(replica.row) else NEW
        return replica

    def explain(self, request: InferenceRequest, view: View) -> Figures:
        """The costs, in blocks."""
        costs = self._costs(request, view.candidates, self._memory.leading(request))
        return {one.name: {"cost": cost} for one, cost in zip(view.candidates, costs, strict=True)}

    def sent(self, request: InferenceRequest, replica: Replica, now: float) -> None:  # noqa: ARG002
        """Its blocks are in use there, and those that should not be cached wait to be computed."""
        active = self._active.setdefault(replica, _Active())
        cached = self._memory.leading(request).get(replica.row, 0)
        uncached = max(0.0, _blocks(request) - cached)
        active.prefill += uncached
        self._uncached[request] = uncached
        users = active.users
        fresh = [block for block in request.blocks if not users[block]]
        users.update(request.blocks)
        active.decode += len(fresh)
        self._in_use.add(fresh, replica.row)
        self._memory.sent(request, replica)

    def began(self, request: InferenceRequest, replica: Replica, now: float) -> None:  # noqa: ARG002
        """Its prompt has been computed."""
        active = self._active.get(replica)
        if active is not None:
            active.prefill -= self._uncached.pop(request, 0.0)

    def finished(self, request: InferenceRequest, replica: Replica, ending: Ending, now: float) -> None:  # noqa: ARG002
        """Its blocks are in use no more."""
        self.began(request, replica, now)
        active = self._active.get(replica)
        if active is None:
            return
        users = active.users
        gone = []
        for block in request.blocks:
            users[block] -= 1
            if users[block] <= 0:
                del users[block]
                gone.append(block)
        active.decode -= len(gone)
        self._in_use.drop(gone, replica.row)

    def removed(self, replica: Replica) -> None:
        """Forget it."""
        self._memory.forget(replica)
        active = self._active.pop(replica, None)
        if active is not None:
            self._in_use.drop(list(active.users), replica.row)

    def _costs(
        self, request: InferenceRequest, candidates: Sequence[Replica], cached: dict[int, int]
    ) -> list[float]:
        shared = self._in_use.leading(request.blocks)
        prompt = _blocks(request)
        costs = []
        for replica in candidates:
            active = self._active.get(replica)
            decode, prefill = (active.decode, active.prefill) if active is not None else (0, 0.0)
            to_compute = max(prefill + prompt - cached.get(replica.row, 0), 0.0)
            in_use = decode + len(request.blocks) - shared.get(replica.row, 0)
            costs.append(PREFILL_LOAD_SCALE * to_compute + in_use)
        return costs


def _blocks(request: InferenceRequest) -> float:
    return prompt_tokens(request) / block_tokens(request)
