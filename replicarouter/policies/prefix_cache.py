"""Where a prompt's beginning is cached already, unless it would wait there for longer than it is worth."""

from array import array
from collections.abc import Mapping, Sequence
from operator import add, sub
from typing import Any, ClassVar, NamedTuple, Self

from replicarouter.fleet.lifecycle import State
from replicarouter.fleet.replica import Replica
from replicarouter.policies.backlog import Backlog
from replicarouter.policies.base import HIT, NEW, NONE, REHASH, SPILL, Ending, Figures, Remembered, View, Wait
from replicarouter.policies.candidate_slots import CandidateSlots
from replicarouter.policies.crowd import Crowd, first_least
from replicarouter.policies.flights import UNKNOWN_CAPACITY, Flight, Member, UnderWay
from replicarouter.policies.news import COMPUTED, ENDED, FAILED, MISSED, SENT, Item, Notebook
from replicarouter.policies.prefill import Speed, Tokens, believable
from replicarouter.policies.prefix_index import Found, PrefixIndex, bits
from replicarouter.protocol.request import BLOCK_CHARACTERS, InferenceRequest, Needs
from replicarouter.settings import PolicyOptions

STAY = 4.0
"""What a token found is worth beside the time to compute it: later turns find it, too."""

BUSY = 2.0
"""How many times the mean cost of the pool a replica may have more, where something is found: in a pool
that has no room to spare nothing gets better by computing things twice."""

REQUEST_SECONDS = 0.08
"""What one more outstanding request costs the others there, in seconds of their prefill: a step takes some
0.25 ms longer for each sequence in it, and an answer has a few hundred steps."""

MOST_EXAMINED = 64
"""Replicas that hold something of the prompt which are compared, at most."""

SHRINK, GROW = 0.97, 1.003
LEAST_TRUST = 0.25
"""How far a replica's capacity is taken to be less than it says, from what it had dropped or kept."""


class Worth(NamedTuple):
    """What leading blocks that are found are worth, in outstanding requests: `block` for each beyond the
    `popular` ones, and `stay` more for each beyond the `shared` ones."""

    block: float
    stay: float
    popular: int
    shared: int

    def of(self, depth: int) -> float:
        """What so many are worth."""
        return self.block * max(0, depth - self.popular) + self.stay * max(0, depth - self.shared)


class PrefixCache:
    """One pool's policy. For each replica an index remembers the prompts it was sent, and the request goes
    to the replica with the least cost, in tokens to be computed:

        backlog + REQUEST_SECONDS x speed x outstanding - found - (STAY x own + BUSY x mean cost x own share)

    - `found` are the leading tokens that the replica has, without those that are popular: what everybody
      begins with is everywhere, or soon will be, and would draw all traffic to one replica.
    - `own` are those of them that no other conversation has, and `own share` is their part of what the
      prompt has for itself. A conversation that moves leaves its history on two replicas and will come
      back; what several conversations share, each of them may as well take along.
    - Where nothing is found, the least loaded replica gets the request.

    Tokens are learned from the `usage` of answers, the speed from TTFT and uncached tokens. The constants
    were chosen by replaying public traces and generated workloads (`replicarouter bench replay`). Cost
    rules of this kind: Dynamo's KV router, and Preble's E2 (V. Srivatsa et al., 2024); the parts for the
    popular and for the own are ours.
    """

    needs: ClassVar[Needs] = Needs.BLOCKS
    learns: ClassVar[bool] = True
    options: ClassVar[frozenset[str]] = frozenset({"prefix_index_bytes"})

    def __init__(self, most_bytes: int = 256 * 2**20) -> None:
        self.index = PrefixIndex(most_bytes)
        self._backlog = Backlog()
        self._tokens = Tokens()
        self._speed = Speed()
        self._crowd = Crowd()
        self._members: dict[Replica, Member] = {}
        self._flights: dict[InferenceRequest, Flight] = {}
        self._under_way = UnderWay(self._backlog)
        self._notebook: Notebook | None = None
        self._expects_unheard = False
        self._seconds = 0.0  # How long a request takes, on average.
        self._start = 0
        self._slots = CandidateSlots(self._open)

    @classmethod
    def of(cls, options: PolicyOptions) -> Self:
        """Make one whose index stays within the bytes it is given."""
        return cls(options.prefix_index_bytes)

    def pick(self, request: InferenceRequest, view: View) -> Replica | Wait:
        """Choose by the rule above, or wait for a full replica that saves more time than it takes."""
        costs = self._costs(view)
        index = first_least(costs, self._start)
        found = self.index.find(request.blocks)
        if not found.steps:
            request.affinity = NEW if request.blocks else NONE
            return self._chosen(request, view, index)
        worth = self._worth(found, costs, request)
        place, depth, away = self._best(found, costs, costs[index], worth)
        if depth:
            self._start = place + 1
            request.affinity = HIT
            request.found = depth * request.block_characters
            return view.candidates[place]
        if away:
            wait = self._worth_waiting(found, worth, view)
            if wait is not None:
                return wait
        request.affinity = REHASH if away else SPILL
        return self._chosen(request, view, index)

    def explain(self, request: InferenceRequest, view: View) -> Figures:
        """The cost of each and what it is made of, in tokens; `outstanding` in requests."""
        found = self.index.find(request.blocks)
        costs = self._costs(view)
        worth = self._worth(found, costs, request)
        unit = self._request
        block = worth.block * unit
        figures = {}
        for replica, load in zip(view.candidates, costs, strict=True):
            member = self._members.get(replica)
            depth = 0 if member is None else self.index.held(member.slot, request.blocks)
            figures[replica.name] = {
                "outstanding": replica.load(view.now),
                "backlog": 0.0 if member is None else self._backlog.waiting[member.slot],
                "cached": depth * block,
                "popular": min(depth, worth.popular) * block,
                "own": max(0, depth - worth.shared) * block,
                "load": load * unit,
                "cost": (load - worth.of(depth)) * unit,
            }
        return figures

    def sent(self, request: InferenceRequest, replica: Replica, now: float) -> None:
        """Its prompt will be in the replica's cache, and what is not yet has to be computed."""
        member, known = self._note(replica, request.blocks, request.block_characters, now)
        per_character = self._tokens.per_character
        expected = known * request.block_characters * per_character
        tokens = max(0.0, request.characters * per_character - expected)
        ahead = self._backlog.waiting[member.slot]
        flight = Flight(member, tokens, ahead, known, expected, member.noted, now)
        self._flights[request] = flight
        begins = 0.0 if request.stream else now + (ahead + tokens) / self._speed.tokens_per_second
        self._under_way.enter(flight, begins)
        if self._notebook is not None:
            self._tell_sent(self._notebook, request, flight, begins)

    def began(self, request: InferenceRequest, replica: Replica, now: float) -> None:  # noqa: ARG002
        """Its prompt has been computed."""
        flight = self._flights.get(request)
        if flight is not None and not flight.began_at:
            flight.began_at = now
            self._under_way.computed(flight)
            if self._notebook is not None:
                self._notebook.note((COMPUTED, flight.number))

    def finished(self, request: InferenceRequest, replica: Replica, ending: Ending, now: float) -> None:  # noqa: ARG002
        """Learn how many tokens the prompt had, how many were cached, and how fast the rest was computed."""
        flight = self._flights.pop(request, None)
        if flight is None:
            return
        self._under_way.leave(flight)
        ok = ending.outcome == "ok"
        computed = ok or flight.began_at > 0
        if self._notebook is not None:
            self._notebook.note((ENDED if computed else FAILED, flight.number))
        if not computed:
            self._take_back(flight, request.blocks)
        if not ok:
            return
        took = now - flight.sent_at
        self._seconds += (took - self._seconds) * (0.05 if self._seconds else 1.0)
        prompt, cached = ending.prompt_tokens, ending.cached_tokens
        if not believable(request.characters, prompt, cached):
            return
        self._tokens.learn(request.characters, prompt)
        if flight.ahead:
            # How much of that was done when it came is not known, nor what the two of them share.
            return
        if flight.began_at:
            uncached = prompt - (flight.expected if cached is None else cached)
            self._speed.learn(uncached, flight.began_at - flight.sent_at)
        if cached is not None:
            self._correct(flight, cached, request.block_characters)

    def removed(self, replica: Replica) -> None:
        """Its cache is out of reach."""
        member = self._members.pop(replica, None)
        if member is None:
            return
        self.index.close(member.slot)
        self._backlog.close(member.slot)
        self._slots.close(replica)
        member.gone = True

    def remembered(self) -> Remembered:
        """The index."""
        index = self.index
        return Remembered(index.entries, index.bytes, index.evicted, index.cut)

    # What workers tell each other

    def share(self, ahead: int, *, obeyed: bool = True) -> None:
        """Tell the others of prompts that are sent and computed. What is learned from how they were answered
        is not told: each learns the same, from its part of the requests."""
        self._start = ahead
        self._notebook = Notebook()
        self._expects_unheard = obeyed

    def news(self) -> Sequence[Item]:
        """Prompts that were sent, and those that were computed."""
        return () if self._notebook is None else self._notebook.take()

    def hear(self, worker: int, news: Sequence[Item], members: Mapping[str, Replica], now: float) -> None:
        """Note prompts as if they had been sent from here: a conversation counts once for each who hears of
        it, whoever does first."""
        for word, *about in news:
            if word == SENT:
                self._hear_sent(worker, about, members, now)
            elif word == COMPUTED:
                self._under_way.computed_other(worker, int(about[0]))
            elif word == MISSED:
                self._under_way.lost(worker)
            elif word in (ENDED, FAILED):
                flight = self._under_way.end_other(worker, int(about[0]))
                if flight is not None and word == FAILED:
                    self._take_back(flight, flight.blocks)

    def lost(self, worker: int) -> None:
        """What it had under way is computed, or never will be."""
        self._under_way.lost(worker)

    def _hear_sent(
        self, worker: int, about: Sequence[Any], members: Mapping[str, Replica], now: float
    ) -> None:
        number, name, packed, block_characters, tokens, begins = about
        replica = members.get(name)
        if replica is None:
            return
        blocks = array("Q", packed).tolist()
        member, known = self._note(replica, blocks, block_characters, now)
        flight = Flight(member, tokens, 0.0, known, 0.0, member.noted, now, blocks=blocks)
        self._under_way.enter_other(worker, number, flight, begins)

    def _tell_sent(
        self, notebook: Notebook, request: InferenceRequest, flight: Flight, begins: float
    ) -> None:
        packed = array("Q", request.blocks).tobytes()
        name, characters = flight.member.replica.name, request.block_characters
        item = (SENT, flight.number, name, packed, characters, flight.tokens, begins)
        notebook.note(item, len(packed))

    # Costs

    def _costs(self, view: View) -> list[float]:
        """What a newcomer would queue behind at each candidate, in outstanding requests."""
        self._under_way.settle(view.now)
        loads = self._crowd.costs(view)
        self._slots.follow(view.candidates)
        # For a thousand replicas this takes half as long as a comprehension.
        costs = list(map(add, self._slots.read(self._backlog.weights), loads))
        if self._expects_unheard:
            self._add_unheard(costs, view)
        return costs

    def _add_unheard(self, costs: list[float], view: View) -> None:
        """Of requests that others have just sent only their number is known, at replicas that serve nothing
        else: take them for typical ones. Else all workers would send those that come at one moment to the
        replica that was least busy before."""
        counts, known = self._crowd.counts, self._slots.read(self._under_way.requests)
        if max(map(sub, counts, known)) <= 0:
            return
        each = self._under_way.typical / self._request
        for place, requests in enumerate(map(sub, counts, known)):
            if requests > 0 and len(view.candidates[place].cards or ()) <= 1:
                costs[place] += requests * each

    @property
    def _request(self) -> float:
        """Tokens that could be computed in the time that an outstanding request costs the others."""
        return REQUEST_SECONDS * self._speed.tokens_per_second

    def _worth(self, found: Found, costs: list[float], request: InferenceRequest) -> "Worth":
        """What it is worth to find so many leading blocks of a prompt."""
        block = request.block_characters * self._tokens.per_character / self._request
        own = max(1, len(request.blocks) - found.shared)
        stay = STAY * block + BUSY * sum(costs) / len(costs) / own
        return Worth(block, stay, found.popular, found.shared)

    def _best(self, found: Found, costs: list[float], least: float, worth: "Worth") -> tuple[int, int, bool]:
        """The candidate that holds something of the prompt and costs `least` or less: its place and its
        leading blocks, 0 if there is none. Last, whether no candidate holds anything."""
        examined = 0
        best, chosen, matched = least, 0, 0
        for depth, holders in found.steps:
            earned = worth.of(depth)
            for slot in bits(holders):
                place = self._slots.place(slot)
                if place is None:
                    continue
                examined += 1
                cost = costs[place] - earned
                if cost < best or (cost == best and not matched):
                    best, chosen, matched = cost, place, depth
            if examined >= MOST_EXAMINED:
                break
        return chosen, matched, not examined

    def _chosen(self, request: InferenceRequest, view: View, index: int) -> Replica:
        """The least loaded one, and what it happens to have of the prompt."""
        self._start = index + 1
        replica = view.candidates[index]
        member = self._members.get(replica)
        held = 0 if member is None else self.index.held(member.slot, request.blocks)
        request.found = held * request.block_characters
        return replica

    def _worth_waiting(self, found: Found, worth: "Worth", view: View) -> Wait | None:
        """Whether the replica with most of the prompt, which is no candidate, is merely full and worth the
        wait for a free place: on average the time of a request by their number there, for this one and each
        that waits already."""
        if not self._seconds:
            return None
        depth, holders = found.steps[0]
        slot = next(bits(holders))
        replica = next(one.replica for one in self._members.values() if one.slot == slot)
        if replica.state is not State.READY or replica.has_room:
            return None
        saved = (depth - worth.popular) * worth.block * REQUEST_SECONDS
        left = saved - view.waited
        turns = (view.held.get(replica, 0) + 1) / max(1, replica.outstanding)
        if left <= 0 or self._seconds * turns > left:
            return None
        return Wait(replica, left)

    # What is learned

    def _note(
        self, replica: Replica, blocks: Sequence[int], block_characters: int, now: float
    ) -> tuple[Member, int]:
        """The replica was sent a prompt with these leading blocks; how many of them it had already."""
        member = self._members.get(replica)
        if member is None:
            self._slots.follow([replica])
            member = self._members[replica]
        self._refresh(member, block_characters, now)
        member.noted += 1
        return member, self.index.note(member.slot, blocks)

    def _open(self, replica: Replica) -> int:
        slot = self.index.open(int(UNKNOWN_CAPACITY / (BLOCK_CHARACTERS * self._tokens.per_character)))
        self._backlog.open(slot)
        self._under_way.open(slot)
        self._backlog.scale(slot, 1 / self._request)
        self._members[replica] = Member(replica, slot, replica.restarts)
        return slot

    def _refresh(self, member: Member, block_characters: int, now: float) -> None:
        """See whether the replica has lost its cache, how large that is, and what a token weighs there."""
        replica = member.replica
        if replica.restarts != member.restarts:
            member.restarts = replica.restarts
            member.trust = 1.0
            self.index.clear(member.slot)
        reading = replica.reading
        if reading is not None and reading.engine.kv_capacity:
            member.capacity = reading.engine.kv_capacity
        per_block = block_characters * self._tokens.per_character
        self.index.resize(member.slot, max(1, int(member.capacity * member.trust / per_block)))
        share = replica.share(now) / self._crowd.common_weight
        self._backlog.scale(member.slot, 1 / (share * self._request))

    def _take_back(self, flight: Flight, blocks: Sequence[int]) -> None:
        """Its replica did not compute it. Who came later may have counted on that: then it stays."""
        member = flight.member
        if self._members.get(member.replica) is member and member.noted == flight.noted:
            self.index.forget(member.slot, blocks[flight.known :])

    def _correct(self, flight: Flight, cached: int, block_characters: int) -> None:
        """Compare what the engine found in its cache with what it should have found."""
        member, block = flight.member, block_characters * self._tokens.per_character
        if cached < flight.expected - 2 * block:
            member.trust = max(LEAST_TRUST, member.trust * SHRINK)
        elif flight.expected:
            member.trust = min(1.0, member.trust * GROW)
