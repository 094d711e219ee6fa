"""A policy that is asked beside the real one of a pool, to see what it would have done."""

from dataclasses import dataclass, replace
from random import Random
from typing import Protocol

from replicarouter.cells import Counter
from replicarouter.exchange import Exchange
from replicarouter.fleet.replica import Replica
from replicarouter.policies.base import NONE, Ending, Policy, View, Wait
from replicarouter.protocol.request import InferenceRequest

SAME, OTHER = "same", "other"

_SEED = 1
"""Of the shadow's own chance: it must not draw from the one that the real policy draws from."""


class Tallies(Protocol):
    """Counters of how requests were routed; in brackets their labels. `routed_characters`: of prompts,
    by the replica that a policy chose, be it the real one or a shadow."""

    shadow: Counter  # policy, result
    shadow_choices: Counter  # policy, result
    shadow_cached_characters: Counter  # policy
    cached_characters: Counter  # policy
    routed_characters: Counter  # policy, replica


@dataclass(frozen=True, slots=True)
class Advice:
    """What a shadow said of one request: where it would have gone, or have waited for."""

    replica: Replica
    waits: float
    affinity: str
    found: int


@dataclass(frozen=True, slots=True)
class _Sent:
    """A request that it would have sent; `same`: the real policy chose the same replica."""

    request: InferenceRequest
    replica: Replica
    same: bool


class Shadow:
    """Asked about each grant. It learns from what it would have done, and changes nothing."""

    def __init__(self, name: str, policy: Policy, tallies: Tallies) -> None:
        self.name = name
        self.policy = policy
        self._tallies = tallies
        self._random = Random(_SEED)
        self._sent: dict[Exchange, _Sent] = {}

    def ask(self, request: InferenceRequest, view: View, real: Replica) -> Advice:
        """What it says where the real policy chose `real`. Times to wait are in seconds, 0 for none."""
        advice = self.advise(request, view)
        self.count(request, advice, real)
        return advice

    def advise(self, request: InferenceRequest, view: View) -> Advice:
        """What it says, which is not counted yet."""
        affinity, found = request.affinity, request.found
        request.affinity, request.found = NONE, 0
        own_view = View(view.replicas, view.candidates, view.now, self._random, view.waited, view.held)
        choice = self.policy.pick(request, own_view)
        if isinstance(choice, Wait):
            advice = Advice(choice.replica, choice.seconds, request.affinity, request.found)
        else:
            advice = Advice(choice, 0.0, request.affinity, request.found)
        request.affinity, request.found = affinity, found
        return advice

    def sent(
        self, request: InferenceRequest, exchange: Exchange, advice: Advice, real: Replica, now: float
    ) -> None:
        """The request went to `real`; the shadow learns that it went where it said."""
        if self.policy.learns:
            same = advice.replica is real
            self._sent[exchange] = _Sent(request, advice.replica, same)
            self.policy.sent(request, advice.replica, now)

    def began(self, exchange: Exchange, now: float) -> None:
        """The first content of its answer came."""
        sent = self._sent.get(exchange)
        if sent is not None:
            self.policy.began(sent.request, sent.replica, now)

    def finished(self, exchange: Exchange, ending: Ending, now: float) -> None:
        """It ended. What another replica had in its cache says nothing of the one that it chose."""
        sent = self._sent.pop(exchange, None)
        if sent is not None:
            told = ending if sent.same else replace(ending, cached_tokens=None)
            self.policy.finished(sent.request, sent.replica, told, now)

    def count(self, request: InferenceRequest, advice: Advice, real: Replica) -> None:
        """Count its advice, beside the replica that the real policy chose."""
        tallies, name = self._tallies, self.name
        tallies.shadow.add((name, advice.affinity))
        tallies.shadow_choices.add((name, SAME if advice.replica is real else OTHER))
        if request.characters:
            tallies.routed_characters.add((name, advice.replica.name), request.characters)
            tallies.shadow_cached_characters.add((name,), advice.found)
