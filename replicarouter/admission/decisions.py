"""The latest routing decisions: which replicas were candidates, what was compared, and what came of it.

A sample, bounded in number and in how many are recorded a second. No key, no prompt, no header value.
"""

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from replicarouter.admission.shadow import Advice, Shadow
from replicarouter.exchange import Exchange
from replicarouter.fleet.lifecycle import State
from replicarouter.fleet.replica import Replica
from replicarouter.policies.base import Figures, Policy, View, Wait
from replicarouter.protocol.request import InferenceRequest

CAPACITY = 2048
"""Decisions that are kept."""

MOST_REPLICAS = 64
"""Candidates, and replicas that were none, that one decision tells of. One over more candidates counts
as several, since it takes as much longer to compare them."""

MOST_OF_ONE = 16
"""Decisions of one request that are recorded because its first one was."""

ROUNDING = 1e-6
"""Seconds by which sums of times may be wrong."""

LONGEST_ID = 200
"""Characters of a request id that count."""


@dataclass(frozen=True, slots=True)
class Case:
    """What is to be decided: by which policies, and among whom. `tried` and `only` are those of a grant."""

    name: str
    policy: Policy
    shadow: Shadow | None
    request: InferenceRequest
    exchange: Exchange
    view: View
    tried: Sequence[Replica]
    only: Replica | None


class Draft:
    """A decision about to be made. It is begun before the policy is asked: figures are what that one
    compares, not what comes of its choice."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._figures = case.policy.explain(case.request, case.view)
        shadow = case.shadow
        self._shadow_figures: Figures = (
            {} if shadow is None else shadow.policy.explain(case.request, case.view)
        )
        exchange, view = case.exchange, case.view
        self.at = view.now
        self.ids = (clipped(exchange.client_id), clipped(exchange.upstream_id))
        self.weight = max(1.0, len(view.candidates) / MOST_REPLICAS)
        candidates = set(view.candidates)
        others = [one for one in view.replicas if one not in candidates]
        self._others = {one.name: _why_not(one, case) for one in others[:MOST_REPLICAS]}
        self._others_left_out = len(others) - len(self._others)

    def document(self, choice: Replica | Wait, advice: Advice | None) -> bytes:
        """All of it as JSON, but for its age."""
        case = self._case
        held = choice if isinstance(choice, Wait) else None
        chosen = None if isinstance(choice, Wait) else choice
        shown = self._shown({chosen, None if advice is None else advice.replica})
        document: dict[str, Any] = {
            "request_id": self.ids[0],
            "upstream_id": self.ids[1],
            "model": clipped(case.exchange.model),
            "policy": case.name,
            "attempt": len(case.tried) + 1,
            "waited": case.view.waited,
            "chosen": None if chosen is None else chosen.name,
            "held_for": None if held is None else {"replica": held.replica.name, "seconds": held.seconds},
            "affinity": case.request.affinity,
            "found_characters": case.request.found,
            "characters": case.request.characters,
            "candidates": _rows(shown, self._figures),
            "candidates_left_out": len(case.view.candidates) - len(shown),
            "not_candidates": self._others,
            "not_candidates_left_out": self._others_left_out,
            "shadow": None,
        }
        if case.shadow is not None and advice is not None:
            document["shadow"] = {
                "policy": case.shadow.name,
                "chosen": advice.replica.name,
                "waits": advice.waits,
                "affinity": advice.affinity,
                "found_characters": advice.found,
                "candidates": _rows(shown, self._shadow_figures),
            }
        return orjson.dumps(document)

    def _shown(self, named: set[Replica | None]) -> list[Replica]:
        """The candidates that are told of, those that were chosen first."""
        candidates = self._case.view.candidates
        first = [one for one in candidates if one in named]
        rest = [one for one in candidates if one not in named]
        return (first + rest)[:MOST_REPLICAS]


@dataclass(frozen=True, slots=True, eq=False)
class _Entry:
    at: float
    ids: tuple[str, ...]
    document: bytes

    def read(self, now: float) -> dict[str, Any]:
        return {"age": now - self.at, **orjson.loads(self.document)}


class Decisions:
    """The decisions that are kept, by the ids of their requests. At most `per_second` are recorded a
    second over time, and as many at once; 0 for none. Times are seconds on the router's clock.

    From `due_at` on, the next decision is to be recorded. It is the generic cell rate algorithm (ITU-T
    I.371): what most requests cost is a comparison.
    """

    def __init__(self, per_second: int) -> None:
        self._paid_until = 0.0
        self._ring: deque[_Entry] = deque()
        self._by_id: dict[str, deque[_Entry]] = {}
        self.reconfigure(per_second)

    def __len__(self) -> int:
        return len(self._ring)

    def reconfigure(self, per_second: int) -> None:
        """Record so many a second from now on."""
        self.per_second = per_second
        self._interval = 1.0 / per_second if per_second else math.inf
        self._schedule()

    def follows(self, exchange: Exchange) -> bool:
        """Whether it is to be recorded because one of the same request was."""
        if not self.per_second:
            return False
        known = self._by_id.get(clipped(exchange.upstream_id))
        return known is not None and len(known) < MOST_OF_ONE

    def keep(self, draft: Draft, choice: Replica | Wait, advice: Advice | None = None) -> None:
        """Record what was decided, in place of the oldest if need be."""
        self._paid_until = max(self._paid_until, draft.at) + draft.weight * self._interval
        self._schedule()
        if len(self._ring) >= CAPACITY:
            self._forget(self._ring.popleft())
        ids = tuple(dict.fromkeys(draft.ids))
        entry = _Entry(draft.at, ids, draft.document(choice, advice))
        self._ring.append(entry)
        for name in ids:
            self._by_id.setdefault(name, deque()).append(entry)

    def of(self, request_id: str, now: float) -> list[dict[str, Any]]:
        """All that was decided about requests of this id, oldest first; each with its `age` in seconds."""
        return [entry.read(now) for entry in self._by_id.get(clipped(request_id), ())]

    def latest(self, count: int, now: float) -> Iterator[dict[str, Any]]:
        """The latest ones, newest first."""
        for entry, _ in zip(reversed(self._ring), range(count), strict=False):
            yield entry.read(now)

    def _schedule(self) -> None:
        self.due_at = self._paid_until - (1.0 - self._interval) - ROUNDING

    def _forget(self, entry: _Entry) -> None:
        for name in entry.ids:
            known = self._by_id[name]
            known.popleft()
            if not known:
                del self._by_id[name]


def clipped(text: str) -> str:
    """As much of a text from outside as is kept, in characters that can be written."""
    return text[:LONGEST_ID].encode("utf-8", "replace").decode()


def _rows(replicas: Sequence[Replica], figures: Figures) -> list[dict[str, Any]]:
    return [{"replica": one.name, "figures": dict(figures.get(one.name, {}))} for one in replicas]


def _why_not(replica: Replica, case: Case) -> str:
    """Why a replica was no candidate; it is asked of those only that were none."""
    if replica.state is not State.READY:
        return str(replica.state.value)
    if replica in case.tried:
        return "tried"
    if case.only is not None and replica is not case.only:
        return "not_owner"
    return "cooling" if replica.has_room else "full"
