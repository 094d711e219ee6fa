"""The contract of a policy. A policy is pure and synchronous: no I/O, no clock, no global."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import add
from random import Random
from typing import ClassVar, NamedTuple, Protocol, Self

from replicarouter.fleet.replica import Replica
from replicarouter.policies.news import Item
from replicarouter.protocol.request import InferenceRequest, Needs
from replicarouter.settings import PolicyOptions

HIT = "hit"
"""The key's own replica, seen before."""

NEW = "new"
"""A key that was not seen before."""

SPILL = "spill"
"""Load sent it elsewhere than to the key's own replica."""

REHASH = "rehash"
"""The key's own replica is gone, or cannot take requests now."""

NONE = "none"
"""The request has no key."""


@dataclass(slots=True, eq=False)
class View:
    """What a policy may look at. `candidates` is a non-empty subset of `replicas`: ready, with room (on
    trial after an ejection that is one request at a time), not yet tried by this request; those that are
    cooling off are left out as long as others remain. Load is compared per `Replica.share(now)`, which is
    the weight, or less while a replica starts slowly. `now` is in seconds on the router's clock; `waited`
    is for how many seconds this request has been queued; infinite: it must not be held any more. `held` says
    how many requests are held for a replica.

    The list `replicas` is replaced when its members change, and never changed in place after that."""

    replicas: Sequence[Replica]
    candidates: Sequence[Replica]
    now: float
    random: Random
    waited: float = 0.0
    held: Mapping[Replica, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wait:
    """Hold the request for `replica`, which is full now but worth the wait: for `seconds` at most, then
    the policy is asked again."""

    replica: Replica
    seconds: float


@dataclass(frozen=True, slots=True)
class Ending:
    """How a request ended at its replica: `outcome` as in the metrics, and the tokens that its engine
    told of. `prompt_tokens` 0 and `cached_tokens` None: it did not say."""

    outcome: str
    prompt_tokens: int = 0
    cached_tokens: int | None = None
    completion_tokens: int = 0


class Remembered(NamedTuple):
    """How much a policy remembers: entries, the bytes they take, and how many were dropped because the
    replica's cache has no room for them (`outlived`) or because of the policy's own bound (`cut`)."""

    entries: int = 0
    bytes: int = 0
    outlived: int = 0
    cut: int = 0

    def plus(self, other: "Remembered") -> "Remembered":
        """What two remember together."""
        return Remembered(*map(add, self, other))


Figures = Mapping[str, Mapping[str, float]]
"""For each candidate, by name, what a policy compares: a name and a number each."""


class Policy(Protocol):
    """Chooses which replica gets the next request. One object serves one pool.

    `needs` says what it has to know of a request; the fields of others may be empty. `learns` says that
    `sent`, `began` and `finished` are to be called; the others spare them. `options` names the fields of
    `PolicyOptions` that it goes by: while these stay the same, it keeps what it has learned. Times are in
    seconds on the router's clock. No method raises, whatever the request.

    Where several workers serve the pool, each has a policy of its own. What all have outstanding at a
    replica stands in `Replica.cells` for everyone; what else they should know of each other they tell as
    news."""

    needs: ClassVar[Needs]
    learns: ClassVar[bool]
    options: ClassVar[frozenset[str]]

    @classmethod
    def of(cls, options: PolicyOptions) -> Self:
        """Make one that goes by `options`."""

    def pick(self, request: InferenceRequest, view: View) -> Replica | Wait:
        """Choose one of `view.candidates`, or ask to wait, unless `view.waited` is infinite; note how in
        `request.affinity`."""

    def explain(self, request: InferenceRequest, view: View) -> Figures:
        """What `pick` would compare now. Changes nothing, so that it may be asked beside `pick`."""

    def sent(self, request: InferenceRequest, replica: Replica, now: float) -> None:
        """A request was handed to `replica`."""

    def began(self, request: InferenceRequest, replica: Replica, now: float) -> None:
        """The first content of its answer came: its prompt has been computed. Streams only."""

    def finished(self, request: InferenceRequest, replica: Replica, ending: Ending, now: float) -> None:
        """A request that was handed to `replica` ended."""

    def removed(self, replica: Replica) -> None:
        """`replica` has left the pool: forget it."""

    def remembered(self) -> Remembered:
        """How much it remembers now."""

    def share(self, ahead: int, *, obeyed: bool = True) -> None:
        """From now on collect news for the others. Where replicas are equal, let the turns begin `ahead`
        places further than they do for the first of the workers. Where they are not `obeyed`, what is
        outstanding does not come of the choices of these policies."""

    def news(self) -> Sequence[Item]:
        """What the others should know, since this was asked last; nothing unless it is shared."""

    def hear(self, worker: int, news: Sequence[Item], members: Mapping[str, Replica], now: float) -> None:
        """That worker's policy has told this, of replicas by their names; who is no member is passed over."""

    def lost(self, worker: int) -> None:
        """That worker is gone, and all that it had under way."""


def loads(view: View) -> Figures:
    """The load of each candidate, and its load per share with one more request."""
    now = view.now
    return {one.name: {"load": one.load(now), "cost": one.cost(now)} for one in view.candidates}


class Forgetful:
    """What policies have in common that look at load alone and learn nothing."""

    needs: ClassVar[Needs] = Needs.NOTHING
    learns: ClassVar[bool] = False
    options: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def of(cls, options: PolicyOptions) -> Self:  # noqa: ARG003
        """None of the options matters."""
        return cls()

    def explain(self, request: InferenceRequest, view: View) -> Figures:  # noqa: ARG002
        """The load of each, and its load per share with one more request."""
        return loads(view)

    def sent(self, request: InferenceRequest, replica: Replica, now: float) -> None:
        """Nothing to learn."""

    def began(self, request: InferenceRequest, replica: Replica, now: float) -> None:
        """Nothing to learn."""

    def finished(self, request: InferenceRequest, replica: Replica, ending: Ending, now: float) -> None:
        """Nothing to learn."""

    def removed(self, replica: Replica) -> None:
        """Nothing to forget."""

    def remembered(self) -> Remembered:
        """Nothing."""
        return Remembered()

    def share(self, ahead: int, *, obeyed: bool = True) -> None:
        """Its choices need no turns."""

    def news(self) -> Sequence[Item]:
        """Nothing."""
        return ()

    def hear(self, worker: int, news: Sequence[Item], members: Mapping[str, Replica], now: float) -> None:
        """Nothing to learn."""

    def lost(self, worker: int) -> None:
        """Nothing to forget."""
