"""Consistent hashing: which replica a key belongs to, and which come next if that one cannot take it."""

from bisect import bisect
from collections.abc import Iterator, Sequence
from hashlib import shake_128
from heapq import heapify, heapreplace
from math import frexp, ldexp
from struct import unpack

from replicarouter.fleet.replica import Replica

POINTS = 64
"""Points of a replica of the usual weight: what it takes to sort them bounds their number."""

_PLACES = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xD6E8FEB86659FD93)
"""A key has a place on the ring for each of these. Multiplying spreads keys that are no good hashes, such as
small numbers (D. Knuth, "The Art of Computer Programming", volume 3, section 6.4); any odd numbers that
look random will do."""

_BITS = 52
_SLOT_BITS = 16
_SLOT = (1 << _SLOT_BITS) - 1
_ROUND = float(1 << _BITS)
_64_BITS = (1 << 64) - 1


class HashRing:
    """Every replica has points on a ring, made from its name. A key has four places there, and belongs to
    the owner of the point that follows one of them most closely. So routers agree without talking, in
    whatever order they list their replicas, and a replica that comes back gets its keys back.
    (D. Karger et al., "Consistent Hashing and Random Trees", 1997, with the several places of B. Appleton
    and M. O'Reilly, "Multi-probe consistent hashing", 2015.)

    Measured against its rivals on one core of the machine that this was written on, in CPython 3.11. Times
    are for 8 and for 1,000 replicas. Spread is the largest share of 30,000 keys over the mean, of 8
    replicas; heirs the same for the keys of one of 4 that leaves, over the other three; both are the mean
    and the worst for 12 sets of names. Moved is the share of others' keys that move when one of 8 leaves.

    | | look-up | from nothing | one comes or goes | spread | heirs | moved |
    |---|---|---|---|---|---|---|
    | ring, 128 points, 1 place | 0.7, 1.4 µs | 0.4, 49 ms | 9 ms | 1.15, 1.25 | 1.18, 1.41 | 0 |
    | ring, 512 points, 1 place | 0.8, 2.2 µs | 1.3, 217 ms | 51 ms | 1.08, 1.15 | 1.08, 1.20 | 0 |
    | ring, 64 points, 4 places | 1.9, 4.0 µs | 0.2, 24 ms | 4 ms | 1.06, 1.09 | 1.09, 1.17 | 0 |
    | rendezvous (xxh3) | 1.4, 99 µs | 0.0, 0.1 ms | 0.1 ms | 1.03, 1.04 | 1.01, 1.03 | 0 |
    | jump | 1.2, 3.1 µs | 0.0, 0.1 ms | 0.1 ms | 1.04, 1.04 | 1.00, 1.00 | 55 % |

    Rendezvous asks every replica for every key: two thirds of what a choice among 1,000 may take. Jump
    moves keys of replicas that stay, unless it is the last one that leaves.

    The number of points goes by the weight over the largest one, which counts as 1 to 2 and matters only
    by powers of two: a replica that comes with another weight leaves the others' points as they are, unless
    it is more than twice as heavy as all before.
    """

    __slots__ = ("_listed", "_owners", "_points", "_slots", "members")

    def __init__(self) -> None:
        self.members: frozenset[Replica] = frozenset()
        self._listed: Sequence[Replica] = ()
        self._slots: dict[str, tuple[int, int]] = {}
        self._owners: list[Replica | None] = []
        self._points: list[float] = []

    def follow(self, replicas: Sequence[Replica]) -> None:
        """Have these as members; a list that is the same object has the same members and weights."""
        if replicas is self._listed:
            return
        self._listed = replicas
        self.members = frozenset(replicas)
        _, exponent = frexp(max([one.weight for one in replicas]))
        wanted = {one.name: max(1, round(POINTS * ldexp(one.weight, 1 - exponent))) for one in replicas}
        slots = self._slots
        left = [name for name, (_, count) in slots.items() if wanted.get(name) != count]
        if left:
            self._take_out(left)
        came = {name: count for name, count in wanted.items() if name not in slots}
        if came:
            self._put_in(came)
        for one in replicas:
            self._owners[slots[one.name][0]] = one

    def home(self, key: int) -> Replica:
        """The member that `key` belongs to."""
        points = self._points
        last = len(points)
        nearest = 2 * _ROUND
        own = 0.0
        for odd in _PLACES:
            place = float((key * odd & _64_BITS) >> (64 - _BITS))
            index = bisect(points, place)
            point = points[index] if index < last else points[0] + _ROUND
            if point - place < nearest:
                own, nearest = point, point - place
        return self._owner(own)

    def walk(self, key: int) -> Iterator[Replica]:
        """All members, each once: the one that `key` belongs to, the one that it would belong to if that
        left, and so on."""
        points = self._points
        last = len(points)
        ways = []
        for odd in _PLACES:
            place = float((key * odd & _64_BITS) >> (64 - _BITS))
            index = bisect(points, place)
            ways.append((points[index % last] + _ROUND * (index // last) - place, index, place))
        heapify(ways)
        seen: set[Replica] = set()
        while len(seen) < len(self._slots):
            _, index, place = ways[0]
            owner = self._owner(points[index % last])
            if owner not in seen:
                seen.add(owner)
                yield owner
            index += 1
            heapreplace(ways, (points[index % last] + _ROUND * (index // last) - place, index, place))

    def _owner(self, point: float) -> Replica:
        owner = self._owners[int(point) & _SLOT]
        assert owner is not None, "a point on the ring has an owner"
        return owner

    def _take_out(self, names: Sequence[str]) -> None:
        gone: set[float] = set()
        for name in names:
            slot, count = self._slots.pop(name)
            gone.update(_points(name, slot, count))
            self._owners[slot] = None
        self._points = [point for point in self._points if point not in gone]

    def _put_in(self, counts: dict[str, int]) -> None:
        free = [slot for slot, owner in enumerate(self._owners) if owner is None]
        for name, count in counts.items():
            if free:
                slot = free.pop()
            else:
                slot = len(self._owners)
                self._owners.append(None)
            self._slots[name] = slot, count
            self._points.extend(_points(name, slot, count))
        # What was there is in order already, so that this is little more than one pass.
        self._points.sort()


def _points(name: str, slot: int, count: int) -> list[float]:
    """Places on the ring, as whole numbers of 52 bits that floats hold exactly (they sort several times
    faster than integers of that size): 36 bits by the name, and 16 that say whose it is.

    SHAKE (FIPS 202) gives any number of bits in one call. XXH3 with the number of the point as its seed,
    tried first, gave names of two characters nearly the same points.
    """
    shift = 64 - _BITS + _SLOT_BITS
    drawn = unpack(f"<{count}Q", shake_128(name.encode()).digest(8 * count))
    return [float(number >> shift << _SLOT_BITS | slot) for number in drawn]
