"""What is checked: the router or engine at the given address, and the replicas behind it. No I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from replicarouter.acceptance.door import Door, Meter
from replicarouter.acceptance.finding import Finding, Status, skipped
from replicarouter.acceptance.prompts import Prompts
from replicarouter.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What the caller asked for. `needle` and `concurrency` are in tokens and streams, `timeout` in seconds
    a check."""

    concurrency: int = 32
    tools: bool = False
    needle: int | None = None
    timeout: float = 120.0
    models: tuple[str, ...] = ()
    only: frozenset[str] = frozenset()
    skip: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One replica: its own door, and what it and the router's admin API say of it. `problem` is why its
    model cards are missing, `cure` what helps; `state` and `why` are empty where nobody told them."""

    door: Door
    cards: Sequence[Mapping[str, object]] = ()
    problem: str = ""
    cure: str = ""
    state: str = ""
    why: str = ""
    version: str = ""

    @property
    def name(self) -> str:
        """What people are told of it."""
        return self.door.name

    @property
    def models(self) -> list[str]:
        """The names it serves."""
        return [str(card["id"]) for card in self.cards]

    def card(self, model: str) -> Mapping[str, object]:
        """What it says of one of its models; empty when it does not serve it."""
        return next((card for card in self.cards if card["id"] == model), {})

    def max_length(self, model: str) -> int | None:
        """Tokens of a prompt and its answer together; None when it does not tell."""
        length = self.card(model).get("max_model_len")
        return length if isinstance(length, int) else None


@dataclass(slots=True, kw_only=True)
class Scene:
    """All that a check may look at. `main` is the address that was given; `router` says whether a router is
    there, whose replicas are `replicas` (else there is one, the engine itself). `blind` is why they are not
    known and what would help: failed, or skipped where they were not wanted. `listed` are the models of the
    main address; `unlisted` says why there is no list."""

    main: Door
    router: bool
    replicas: Sequence[Replica]
    admin: Door | None
    blind: Finding | None
    listed: Sequence[Mapping[str, object]]
    unlisted: str
    wishes: Wishes
    prompts: Prompts
    clock: Clock
    meter: Meter = field(default_factory=Meter)

    @property
    def unseen(self) -> str:
        """What to say instead of something about the replicas when these are not known."""
        meant = self.blind is not None and self.blind.status is not Status.FAIL
        return "only the router is checked" if meant else "the replicas are not known"

    @property
    def names(self) -> list[str]:
        """The models that the main address lists."""
        return [str(card["id"]) for card in self.listed]

    @property
    def models(self) -> list[str]:
        """The models to check: those asked for, else all that are listed and no adapters of others."""
        if self.wishes.models:
            return list(self.wishes.models)
        return [str(card["id"]) for card in self.listed if not card.get("parent")]

    def serving(self, model: str) -> list[Replica]:
        """The replicas that list a model; all of them when none lists anything."""
        named = [replica for replica in self.replicas if replica.card(model)]
        return named or [replica for replica in self.replicas if not replica.cards]

    def max_length(self, model: str) -> int | None:
        """Tokens that fit every replica of a model; None when no one tells."""
        lengths = [replica.max_length(model) for replica in self.serving(model)]
        return min((length for length in lengths if length is not None), default=None)

    def doors(self, model: str) -> list[Door]:
        """Every way to reach a model: the main address, and each replica behind it."""
        if not self.router:
            return [self.main]
        return [self.main, *(replica.door for replica in self.serving(model))]

    def too_few(self, model: str) -> Finding | None:
        """Why replicas cannot be compared; None when they can."""
        if self.blind is not None:
            return skipped(self.unseen)
        if len(self.serving(model)) < 2:
            return skipped("fewer than two replicas: nothing to compare")
        return None
