"""What belongs to one pool: its policy, the shadow beside it, and the book of those who compete for it."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from replicarouter.admission.decisions import Decisions
from replicarouter.admission.fairness import Book
from replicarouter.admission.plan import PolicyPlan
from replicarouter.admission.shadow import Advice, Shadow, Tallies
from replicarouter.exchange import Exchange
from replicarouter.fleet.registry import Pool
from replicarouter.fleet.replica import Replica
from replicarouter.policies.base import Ending, Policy, Remembered, View
from replicarouter.policies.news import Item
from replicarouter.protocol.request import InferenceRequest, Needs

Told = tuple[str, str, bool, Sequence[Item]]
"""What a policy has told: the model of its pool, its name, whether it is a shadow, and the news."""


class Desk:
    """One pool's. `needs` is what has to be known of its requests; `learns` says that `sent`, `began` and
    `finished` are to be called; `turns` is how many replicas it was opened with; `stir` is called when there
    may be news for other workers."""

    __slots__ = ("_sent", "_tallies", "book", "learns", "name", "needs", "policy", "shadow", "stir", "turns")

    def __init__(
        self, name: str, policy: Policy, shadow: Shadow | None, book: Book, tallies: Tallies
    ) -> None:
        self.book = book
        self._tallies = tallies
        self._sent: dict[Exchange, tuple[InferenceRequest, Replica]] = {}
        self.name = name
        self.policy = policy
        self.turns = 1
        self.stir: Callable[[], None] | None = None
        self.place_shadow(shadow)

    def replace(self, name: str, policy: Policy) -> None:
        """Go by another policy. How requests end that the one before has sent tells it nothing."""
        self.name, self.policy = name, policy
        self._sent = {}
        self.place_shadow(self.shadow)

    def place_shadow(self, shadow: Shadow | None) -> None:
        """Ask this policy beside the real one, or none."""
        self.shadow = shadow
        self.needs: Needs = self.policy.needs
        self.learns: bool = self.policy.learns
        if shadow is not None:
            self.needs |= shadow.policy.needs
            self.learns = self.learns or shadow.policy.learns

    def advise(self, request: InferenceRequest, view: View) -> Advice | None:
        """What the shadow says; to be asked before the replica that was chosen has the request."""
        return None if self.shadow is None else self.shadow.advise(request, view)

    def choose(
        self,
        request: InferenceRequest,
        replica: Replica,
        view: View,
        advice: Advice | None = None,
    ) -> Advice | None:
        """The policy chose `replica`: count it, and ask the shadow, unless it has given its `advice`. Without
        that, the replica must not have the request yet."""
        if request.characters:
            self._tallies.routed_characters.add((self.name, replica.name), request.characters)
            self._tallies.cached_characters.add((self.name,), request.found)
        if self.shadow is None:
            return None
        if advice is None:
            return self.shadow.ask(request, view, replica)
        self.shadow.count(request, advice, replica)
        return advice

    def sent(
        self,
        request: InferenceRequest,
        exchange: Exchange,
        replica: Replica,
        advice: Advice | None,
        now: float,
    ) -> None:
        """The request has a lease of `replica`."""
        if self.policy.learns:
            self._sent[exchange] = request, replica
            self.policy.sent(request, replica, now)
        if self.shadow is not None and advice is not None:
            self.shadow.sent(request, exchange, advice, replica, now)
        if self.stir is not None:
            self.stir()

    def began(self, exchange: Exchange, now: float) -> None:
        """The first content of its answer came."""
        sent = self._sent.get(exchange)
        if sent is not None:
            self.policy.began(*sent, now)
        if self.shadow is not None:
            self.shadow.began(exchange, now)
        if self.stir is not None:
            self.stir()

    def finished(self, exchange: Exchange, outcome: str, now: float) -> None:
        """Its lease has ended."""
        told = Ending(outcome, exchange.prompt_tokens, exchange.cached_tokens, exchange.completion_tokens)
        sent = self._sent.pop(exchange, None)
        if sent is not None:
            self.policy.finished(*sent, told, now)
        if self.shadow is not None:
            self.shadow.finished(exchange, told, now)
        if self.stir is not None:
            self.stir()

    def remembered(self) -> Remembered:
        """How much its policy and the shadow remember together."""
        own = self.policy.remembered()
        return own if self.shadow is None else own.plus(self.shadow.policy.remembered())

    def removed(self, replica: Replica) -> None:
        """`replica` has left."""
        for _, _, policy in self.policies():
            policy.removed(replica)

    def policies(self) -> Iterator[tuple[str, bool, Policy]]:
        """Its policy, and the shadow if there is one: their names and whether they are shadows."""
        yield self.name, False, self.policy
        if self.shadow is not None:
            yield self.shadow.name, True, self.shadow.policy


class Desks:
    """The desks of all pools, each opened when it is asked for first. `decisions` is where they note what
    they decide.

    Every worker has its own; once told to `share`, they say when their policies may have learned something,
    which is then to be taken and brought to all the others. A policy hears from those of its own name alone:
    others go by something else, until they have been reloaded, too.
    """

    def __init__(self, plan: PolicyPlan, tallies: Tallies, decisions: Decisions) -> None:
        self.plan = plan
        self.decisions = decisions
        self._tallies = tallies
        self.open: dict[str, Desk] = {}
        """Those that are open, by the models of their pools. To be read only; who may not be there is to be
        asked of `of`."""
        self._books: dict[Replica, Book] = {}
        self._shares: Mapping[str, float] = {}
        self.open_book: Callable[[Mapping[str, float], str], Book] = lambda shares, _: Book(shares)
        """Makes a book of callers with these weights; every worker gives it the same name."""
        self._seat: tuple[int, int] | None = None
        self._stir: Callable[[], None] | None = None

    def __iter__(self) -> Iterator[Desk]:
        return iter(self.open.values())

    def find(self, model: str) -> Desk | None:
        """The desk of a model's pool, if it is open."""
        return self.open.get(model)

    def policy_of(self, model: str) -> str:
        """The name of the policy that the pool of `model` goes by."""
        return self.plan.name_for(model)

    def of(self, pool: Pool) -> Desk:
        """The desk of a pool."""
        return self.open.get(pool.model) or self._open(pool)

    def reweigh(self, shares: Mapping[str, float]) -> None:
        """Give callers other weights. Nobody may wait meanwhile."""
        self._shares = shares
        for desk in self:
            desk.book.reweigh(shares)

    def replan(self, plan: PolicyPlan) -> set[str]:
        """Go by another plan; the models whose policy has changed. The others keep what they learned."""
        before, self.plan = self.plan, plan
        changed = set()
        for model, desk in self.open.items():
            name, shadow = plan.name_for(model), plan.shadow_for(model)
            if name != desk.name or not plan.makes_as(before, name):
                desk.replace(name, self._make(name, desk.turns))
                changed.add(model)
            if shadow != (desk.shadow and desk.shadow.name) or (
                shadow is not None and not plan.makes_as(before, shadow)
            ):
                desk.place_shadow(self._make_shadow(shadow, desk.turns))
        return changed

    def remembered(self) -> Mapping[str, Remembered]:
        """How much the policy of each model's pool remembers, and the shadow beside it."""
        return {model: desk.remembered() for model, desk in self.open.items()}

    def removed(self, replica: Replica) -> None:
        """`replica` has left the fleet."""
        self._books.pop(replica, None)
        for desk in self:
            desk.removed(replica)

    # Workers

    def share(self, worker: int, workers: int, stir: Callable[[], None]) -> None:
        """This is worker number `worker` of so many; they hear from each other from now on. `stir` is called
        when there may be `news`."""
        self._seat, self._stir = (worker, workers), stir
        for desk in self:
            desk.stir = stir
            for _, shadow, policy in desk.policies():
                policy.share(self._ahead(desk.turns), obeyed=not shadow)

    def news(self) -> Sequence[Told]:
        """What the other workers should know, since this was asked last."""
        told = []
        for model, desk in self.open.items():
            for name, shadow, policy in desk.policies():
                news = policy.news()
                if news:
                    told.append((model, name, shadow, news))
        return told

    def hear(self, worker: int, told: Sequence[Told], pools: Mapping[str, Pool], now: float) -> None:
        """Another worker has told this, at some time before `now`. What is told of pools and replicas that
        are not known here is passed over."""
        for model, name, shadow, news in told:
            pool = pools.get(model)
            if pool is None:
                continue
            for own_name, is_shadow, policy in self.of(pool).policies():
                if (own_name, is_shadow) == (name, shadow):
                    policy.hear(worker, news, {one.name: one for one in pool.replicas}, now)

    def lost(self, worker: int) -> None:
        """That worker is gone, and what it had under way ends."""
        for desk in self:
            for _, _, policy in desk.policies():
                policy.lost(worker)

    def _ahead(self, turns: int) -> int:
        worker, workers = self._seat or (0, 1)
        return worker * turns // workers

    def _make(self, name: str, turns: int, *, shadow: bool = False) -> Policy:
        policy = self.plan.make(name)
        if self._seat is not None:
            policy.share(self._ahead(turns), obeyed=not shadow)
        return policy

    def _open(self, pool: Pool) -> Desk:
        """Pools that share a replica share a book: they compete for its room."""
        known = (self._books[replica] for replica in pool.replicas if replica in self._books)
        models = [card["id"] for replica in pool.replicas for card in replica.cards or ()]
        book = next(known, None) or self.open_book(self._shares, min(models, default=pool.model))
        for replica in pool.replicas:
            self._books.setdefault(replica, book)
        name = self.plan.name_for(pool.model)
        turns = len(pool.replicas)
        shadow = self._make_shadow(self.plan.shadow_for(pool.model), turns)
        desk = Desk(name, self._make(name, turns), shadow, book, self._tallies)
        desk.turns, desk.stir = turns, self._stir
        self.open[pool.model] = desk
        return desk

    def _make_shadow(self, name: str | None, turns: int) -> Shadow | None:
        return None if name is None else Shadow(name, self._make(name, turns, shadow=True), self._tallies)
