"""Consistent hashing with bounded loads: requests with the same key meet the same replica, and none gets
more than its share for it. (V. Mirrokni, M. Thorup, M. Zadimoghaddam, 2016, with a memory of keys.)"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import islice
from math import sqrt
from typing import ClassVar, Self

from replicarouter.fleet.replica import Replica
from replicarouter.policies.base import (
    HIT,
    NEW,
    NONE,
    REHASH,
    SPILL,
    Ending,
    Figures,
    Forgetful,
    Remembered,
    View,
)
from replicarouter.policies.crowd import Crowd
from replicarouter.policies.hash_ring import HashRing
from replicarouter.policies.key_memory import BYTES_PER_KEY, MOST_KEYS, KeyMemory, Place
from replicarouter.policies.least_outstanding import LeastOutstanding
from replicarouter.policies.news import PLACED, Item, Notebook
from replicarouter.protocol.request import InferenceRequest
from replicarouter.settings import PolicyOptions

FREE = 4
"""Outstanding requests that a replica may have whatever the mean is: with few requests the mean says
nothing."""

CHANCE = 1.0
"""Standard deviations above the bound that a key may find its replica at. Users who pause to think are there
by chance, which alone makes a count vary by the root of its mean; to send each of them away who comes at a
crowded moment would part one in ten from its cache, for no lasting imbalance. A key of which something runs
already is no matter of chance, and gets none of this."""

MOST_ASKED = 16
"""Replicas that are asked in the order of the ring before the least loaded one of all is taken. Of those
that share a mean, at least one in nine is below 1.125 times of it."""


class Keyed(Forgetful, ABC):
    """A key belongs to a replica by its hash. What it does beside that:

    - A replica takes a request as long as it has no more than `load_factor` times the mean outstanding, by
      its share, and this request counted; or 4.
    - A key that is new at its replica needs more room there: half as much above the mean is allowed. So
      keys that have a cache somewhere are not pushed away by those that have none yet.
    - A key that found no room at its first request stays where it was placed then, as its cache is there.
      All others follow the hash, so that routers agree without talking and a restart moves nothing.
    - A key whose replica has too much to do, or cannot take requests now, is served by others meanwhile,
      and returns.
    - Workers tell each other where they have placed a key, once. What of it runs they do not tell: a key
      is then looked upon as one that came by chance by those workers that have nothing of it themselves.
    """

    learns: ClassVar[bool] = True
    options: ClassVar[frozenset[str]] = frozenset({"load_factor"})

    def __init__(self, load_factor: float = 1.25, most_keys: int = MOST_KEYS) -> None:
        self._full = load_factor
        self._tight = (1 + load_factor) / 2
        self._keyless = LeastOutstanding()
        self._crowd = Crowd()
        self._ring = HashRing()
        self._memory = KeyMemory(most_keys)
        self._crowded_out: InferenceRequest | None = None
        self._running: dict[int, int] = {}  # Requests that have not ended, by key.
        self._notebook: Notebook | None = None

    @classmethod
    def of(cls, options: PolicyOptions) -> Self:
        """Make one that allows the `load_factor` of the options."""
        return cls(options.load_factor)

    @abstractmethod
    def key(self, request: InferenceRequest) -> int | None:
        """What ties a request to others; None when nothing does."""

    def pick(self, request: InferenceRequest, view: View) -> Replica:
        """Choose the replica of the request's key, or the least loaded one when it has none."""
        key = self.key(request)
        if key is None:
            request.affinity = NONE
            return self._keyless.pick(request, view)
        self._crowded_out = None
        self._ring.follow(view.replicas)
        home = self._ring.home(key)
        room = _Room(view, self._crowd)
        place = self._memory.find(key)
        if place is None or place.replica not in self._ring.members:
            request.affinity = NEW if place is None else REHASH
            if room.has(home, self._tight):
                return home
            if room.is_crowded(home):
                self._crowded_out = request
            return self._elsewhere(key, request, view, room)
        own = place.replica
        if own is not home and not place.displaced and room.has(home, self._tight):
            # It belongs to another replica since it was seen last.
            request.affinity = REHASH
            return home
        if room.has(own, self._full, 0.0 if key in self._running else CHANCE):
            request.affinity = HIT
            return own
        request.affinity = SPILL if room.is_crowded(own) else REHASH
        return self._elsewhere(key, request, view, room)

    def explain(self, request: InferenceRequest, view: View) -> Figures:
        """The load of each, how much it may have before a key goes elsewhere, and whether the key is its
        own (1) or not (0); without a key what least-outstanding compares."""
        key = self.key(request)
        if key is None:
            return self._keyless.explain(request, view)
        self._ring.follow(view.replicas)
        place = self._memory.find(key)
        known = place is not None and place.replica in self._ring.members
        own = place.replica if place is not None and known else self._ring.home(key)
        room = _Room(view, self._crowd)
        chance = 0.0 if key in self._running else CHANCE
        return {
            one.name: {
                "load": one.load(view.now),
                "limit": room.limit(one, self._full, chance) if known else room.limit(one, self._tight),
                "own": float(one is own),
            }
            for one in view.candidates
        }

    def sent(self, request: InferenceRequest, replica: Replica, now: float) -> None:
        """Remember where the key is, if that is its place from now on."""
        key = self.key(request)
        if key is None:
            return
        self._running[key] = self._running.get(key, 0) + 1
        memory, ring = self._memory, self._ring
        place = memory.find(key)
        if place is None or place.replica not in ring.members:
            displaced = self._crowded_out is request and replica is not ring.home(key)
            self._place(key, replica, now, displaced=displaced)
        elif replica is not place.replica and not place.displaced and replica is ring.home(key):
            self._place(key, replica, now)
        else:
            memory.use(key)

    def finished(self, request: InferenceRequest, replica: Replica, ending: Ending, now: float) -> None:  # noqa: ARG002
        """One less of its key is running."""
        key = self.key(request)
        if key is None:
            return
        left = self._running.get(key, 0) - 1
        if left > 0:
            self._running[key] = left
        else:
            self._running.pop(key, None)

    def remembered(self) -> Remembered:
        """The places of keys."""
        memory = self._memory
        return Remembered(len(memory), BYTES_PER_KEY * len(memory), cut=memory.forgotten)

    def share(self, ahead: int, *, obeyed: bool = True) -> None:  # noqa: ARG002
        """Tell the others where keys are placed."""
        self._keyless.share(ahead)
        self._notebook = Notebook()

    def news(self) -> Sequence[Item]:
        """Keys that were placed."""
        return () if self._notebook is None else self._notebook.take()

    def hear(self, worker: int, news: Sequence[Item], members: Mapping[str, Replica], now: float) -> None:  # noqa: ARG002
        """Remember where another worker has placed keys."""
        hear = self._memory.hear
        for word, *about in news:
            if word == PLACED:
                key, name, displaced, at = about
                replica = members.get(str(name))
                if replica is not None:
                    hear(int(key), Place(replica, bool(displaced), float(at)))

    def lost(self, worker: int) -> None:
        """What it has placed stays there."""

    def _place(self, key: int, replica: Replica, now: float, *, displaced: bool = False) -> None:
        self._memory.put(key, replica, displaced=displaced, at=now)
        if self._notebook is not None:
            self._notebook.note((PLACED, key, replica.name, displaced, now))

    def _elsewhere(self, key: int, request: InferenceRequest, view: View, room: "_Room") -> Replica:
        """The first one with room in the order of the ring."""
        for replica in islice(self._ring.walk(key), MOST_ASKED):
            if room.has(replica, self._tight):
                return replica
        return self._keyless.pick(request, view)


class _Room:
    """How much each candidate may have."""

    __slots__ = ("_among", "_mean", "_now")

    def __init__(self, view: View, crowd: Crowd) -> None:
        load, share = crowd.total(view)
        candidates = view.candidates
        self._mean = (load + 1) / share
        self._now = view.now
        self._among = frozenset(candidates) if len(candidates) < len(view.replicas) else None

    def has(self, replica: Replica, factor: float, chance: float = 0.0) -> bool:
        """Whether it can take this request and stay within `factor` times the mean, and `chance` standard
        deviations."""
        if self._among is not None and replica not in self._among:
            return False
        load = replica.load(self._now)
        return load < FREE or load < self.limit(replica, factor, chance)

    def limit(self, replica: Replica, factor: float, chance: float = 0.0) -> float:
        """The load from which on it has no room for one more."""
        even = self._mean * replica.share(self._now)
        return max(FREE, factor * even + chance * sqrt(even))

    def is_crowded(self, replica: Replica) -> bool:
        """Whether it is for its load that it has no room, not for being out of order or tried already."""
        if self._among is None or replica in self._among or replica.cooling(self._now):
            return True
        return 0 < replica.most <= replica.outstanding
