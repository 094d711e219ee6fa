"""The contract of a policy. A policy is pure and synchronous: no I/O, no clock, no global."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from replicarouter.fleet.replica import Replica
from replicarouter.protocol.request import InferenceRequest


@dataclass(slots=True, eq=False)
class View:
    """What a policy may look at. `candidates` is a non-empty subset of `replicas`: ready, with room (on
    trial after an ejection that is one request at a time), not yet tried by this request; those that are
    cooling off are left out as long as others remain. Load is compared per `Replica.share(now)`, which is
    the weight, or less while a replica starts slowly. `now` is in seconds on the router's clock."""

    replicas: Sequence[Replica]
    candidates: Sequence[Replica]
    now: float
    random: Random


@dataclass(frozen=True, slots=True)
class Wait:
    """Hold the request for `replica`, which is full now but worth the wait, within its deadline."""

    replica: Replica


class Policy(Protocol):
    """Chooses which replica gets the next request. One object serves one pool."""

    def pick(self, request: InferenceRequest, view: View) -> Replica | Wait:
        """Choose one of `view.candidates`, or ask to wait."""

    def sent(self, request: InferenceRequest, replica: Replica) -> None:
        """A request was handed to `replica`."""

    def finished(self, request: InferenceRequest, replica: Replica, outcome: str) -> None:
        """A request that was handed to `replica` ended with `outcome`."""

    def removed(self, replica: Replica) -> None:
        """`replica` has left the pool: forget it."""


class Forgetful:
    """The three hooks for policies that learn nothing from them."""

    def sent(self, request: InferenceRequest, replica: Replica) -> None:
        """Nothing to learn."""

    def finished(self, request: InferenceRequest, replica: Replica, outcome: str) -> None:
        """Nothing to learn."""

    def removed(self, replica: Replica) -> None:
        """Nothing to forget."""
