"""The latest routing decisions: which replicas were candidates, what was compared, and what came of it.

A sample, bounded in number, in bytes and in how many are recorded a second. No key, no prompt, no header
value.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import orjson

from replicarouter.admission.shadow import Advice, Shadow
from replicarouter.clock import CallLater
from replicarouter.exchange import Exchange
from replicarouter.fleet.lifecycle import State
from replicarouter.fleet.replica import Replica
from replicarouter.policies.base import Figures, Policy, View, Wait
from replicarouter.protocol.request import InferenceRequest

CAPACITY = 2048
MOST_BYTES = 8 * 2**20
"""Decisions that are kept, and how much their documents may take: a large fleet has large ones."""

ROW = ("request_id", "upstream_id", "model", "policy", "chosen", "affinity", "attempt")
"""What is told of a decision in a list of them."""

MOST_REPLICAS = 64
"""Candidates, and replicas that were none, that one decision tells of. One over more candidates counts
as several, since it takes as much longer to compare them."""

MOST_OF_ONE = 16
"""Decisions of one request that are recorded because its first one was; and told of one id, the newest."""

ROUNDING = 1e-6
"""Seconds by which sums of times may be wrong."""

WRITE_AFTER = 0.25
"""Seconds after which a decision is written out, with all that were made meanwhile: the code for one alone
would have left the processor's caches since the last."""

LONGEST_ID = 200
"""Characters of a request id that count."""

Kept = tuple[float, tuple[str, ...], bytes, bytes]
"""A decision as one worker tells it to another process: when it was made, the ids of its request, its
document and its row."""


class Case(NamedTuple):
    """What is to be decided: by which policies, and among whom. `tried` and `only` are those of a grant;
    the request is queued `since` then, 0 for not at all."""

    name: str
    policy: Policy
    shadow: Shadow | None
    request: InferenceRequest
    exchange: Exchange
    view: View
    tried: Sequence[Replica]
    only: Replica | None
    since: float = 0.0


class Draft:
    """A decision about to be made. It is begun before the policy is asked: figures are what that one
    compares, not what comes of its choice. Its request waits meanwhile: what can be seen later is left for
    then."""

    __slots__ = (
        *("_advice", "_case", "_choice", "_figures", "_of_request", "_others", "_others_left_out"),
        *("_shadow_figures", "at"),
    )

    def __init__(self, case: Case) -> None:
        view, shadow = case.view, case.shadow
        self._case = case
        self.at = view.now
        self._figures = case.policy.explain(case.request, view)
        self._shadow_figures: Figures | None = None
        if shadow is not None:
            self._shadow_figures = shadow.policy.explain(case.request, view)
        self._others: dict[str, str] | None = None
        self._others_left_out = 0
        if len(view.candidates) != len(view.replicas):
            candidates = set(view.candidates)
            others = [one for one in view.replicas if one not in candidates]
            self._others = {one.name: _why_not(one, case) for one in others[:MOST_REPLICAS]}
            self._others_left_out = len(others) - len(self._others)
        self._choice: Replica | Wait | None = None
        self._advice: Advice | None = None
        self._of_request: tuple[str, int, int] = ("", 0, 0)

    @property
    def weight(self) -> float:
        """As how many it counts."""
        return max(1.0, len(self._case.view.candidates) / MOST_REPLICAS)

    @property
    def ids(self) -> tuple[str, str]:
        """Of its request: what the client sees, and what the replica."""
        exchange = self._case.exchange
        return clipped(exchange.client_id), clipped(exchange.upstream_id)

    def decided(self, choice: Replica | Wait, advice: Advice | None) -> None:
        """Note what came of it, and what another attempt would change."""
        request = self._case.request
        self._choice, self._advice = choice, advice
        self._of_request = (request.affinity, request.found, request.characters)

    def document(self) -> dict[str, Any]:
        """All of it but its age, once it is decided."""
        case, advice = self._case, self._advice
        request_id, upstream_id = self.ids
        affinity, found, characters = self._of_request
        held = self._choice if isinstance(self._choice, Wait) else None
        chosen = self._choice if isinstance(self._choice, Replica) else None
        shown = self._shown({chosen, None if advice is None else advice.replica})
        document: dict[str, Any] = {
            "request_id": request_id,
            "upstream_id": upstream_id,
            "model": clipped(case.exchange.model),
            "policy": case.name,
            "attempt": len(case.tried) + 1,
            "waited": case.view.now - case.since if case.since else 0.0,
            "chosen": None if chosen is None else chosen.name,
            "held_for": None if held is None else {"replica": held.replica.name, "seconds": held.seconds},
            "affinity": affinity,
            "found_characters": found,
            "characters": characters,
            "candidates": _rows(shown, self._figures),
            "candidates_left_out": len(case.view.candidates) - len(shown),
            "not_candidates": self._others or {},
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
                "candidates": _rows(shown, self._shadow_figures or {}),
            }
        return document

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
    row: bytes

    @property
    def size(self) -> int:
        return len(self.document) + len(self.row)

    def aged(self, written: bytes, now: float) -> bytes:
        """An object, with its age before its members."""
        return b'{"age":%b,%b' % (orjson.dumps(now - self.at), written[1:])


class Decisions:
    """The decisions that are kept, by the ids of their requests. At most `per_second` are recorded a
    second over time, and as many at once; 0 for none. Times are seconds on the router's clock.

    From `due_at` on, the next decision is to be recorded. It is the generic cell rate algorithm (ITU-T
    I.371): what most requests cost is a comparison.

    With `later` decisions are written out some at a time, behind their requests; whoever asks for one before
    gets it all the same.

    Of several workers each records its part of the rate, and tells the one that answers for all.
    """

    def __init__(self, per_second: int) -> None:
        self.later: CallLater | None = None
        self._made: list[Draft] = []
        self._paid_until = 0.0
        self._workers = 1
        self._news: deque[_Entry] | None = None
        self._ring: deque[_Entry] = deque()
        self._bytes = 0
        self._by_id: dict[str, deque[_Entry]] = {}
        self.reconfigure(per_second)

    def __len__(self) -> int:
        self._write_out()
        return len(self._ring)

    def reconfigure(self, per_second: int) -> None:
        """Record so many a second from now on."""
        self.per_second = per_second
        self._interval = self._workers / per_second if per_second else math.inf
        self._schedule()

    def share(self, workers: int) -> None:
        """This is one of so many workers: record its part, and collect it for the one that answers."""
        self._workers = workers
        self._news = deque(maxlen=CAPACITY)
        self.reconfigure(self.per_second)

    def news(self) -> Sequence[Kept]:
        """What was recorded since this was asked last."""
        self._write_out()
        if not self._news:
            return ()
        kept = [(entry.at, entry.ids, entry.document, entry.row) for entry in self._news]
        self._news.clear()
        return kept

    def hear(self, kept: Sequence[Kept]) -> None:
        """A worker has recorded this."""
        for one in kept:
            self._add(_Entry(*one))

    def follows(self, exchange: Exchange) -> bool:
        """Whether it is to be recorded because one of the same request was."""
        if not self.per_second:
            return False
        self._write_out()
        known = self._by_id.get(clipped(exchange.upstream_id))
        return known is not None and len(known) < MOST_OF_ONE

    def keep(self, draft: Draft, choice: Replica | Wait, advice: Advice | None = None) -> None:
        """Record what was decided, in place of the oldest ones if need be."""
        self._paid_until = max(self._paid_until, draft.at) + draft.weight * self._interval
        self._schedule()
        draft.decided(choice, advice)
        self._made.append(draft)
        if self.later is None:
            self._write_out()
        elif len(self._made) == 1:
            self.later(WRITE_AFTER, self._write_out)

    def _write_out(self) -> None:
        made, self._made = self._made, []
        for draft in made:
            ids = tuple(dict.fromkeys(draft.ids))
            document = draft.document()
            row = orjson.dumps({name: document[name] for name in ROW})
            entry = _Entry(draft.at, ids, orjson.dumps(document), row)
            self._add(entry)
            if self._news is not None:
                self._news.append(entry)

    def _add(self, entry: _Entry) -> None:
        self._bytes += entry.size
        while self._ring and (len(self._ring) >= CAPACITY or self._bytes > MOST_BYTES):
            self._forget(self._ring.popleft())
        self._ring.append(entry)
        for name in entry.ids:
            self._by_id.setdefault(name, deque()).append(entry)

    def of(self, request_id: str, now: float) -> list[bytes]:
        """The newest that were decided about requests of this id, the oldest of them first: JSON, each with
        its `age` in seconds."""
        self._write_out()
        known = self._by_id.get(clipped(request_id), ())
        newest = list(islice(reversed(known), MOST_OF_ONE))
        return [entry.aged(entry.document, now) for entry in reversed(newest)]

    def latest(self, count: int, now: float) -> list[bytes]:
        """A row of each of the latest ones, newest first: JSON, with the `age` as above."""
        self._write_out()
        # Those of several workers come one worker after another.
        latest = sorted(islice(reversed(self._ring), count), key=lambda entry: -entry.at)
        return [entry.aged(entry.row, now) for entry in latest]

    def _schedule(self) -> None:
        at_once = max(0.0, 1.0 - self._interval)
        self.due_at = self._paid_until - at_once - ROUNDING if self.per_second else math.inf

    def _forget(self, entry: _Entry) -> None:
        self._bytes -= entry.size
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
