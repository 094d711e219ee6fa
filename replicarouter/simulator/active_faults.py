"""The faults that are active now, and which of them a request suffers. No sockets, no clock."""

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

from replicarouter.simulator.faults import KINDS, Fault

_PROBING = {"GET", "HEAD"}


class Active:
    """One active fault: how many requests suffered it, and until when it lasts (None: no end)."""

    __slots__ = ("_random", "fault", "hits", "until")

    def __init__(self, fault: Fault, until: float | None) -> None:
        self.fault = fault
        self.until = until
        self.hits = 0
        self._random = Random(fault.seed)

    def strikes(self, method: str) -> bool:
        """Whether a request suffers it; each question draws anew."""
        fault = self.fault
        if fault.on != "all" and (method in _PROBING) != (fault.on == "probes"):
            return False
        return fault.share >= 1 or self._random.random() < fault.share

    @property
    def used_up(self) -> bool:
        """As many requests as it was meant for have suffered it."""
        return self.fault.count is not None and self.hits >= self.fault.count


class ActiveFaults:
    """At most one fault of each kind. `hits` counts the requests that suffered each kind since the start."""

    def __init__(self) -> None:
        self._active: dict[str, Active] = {}
        self.hits: Counter[str] = Counter()

    def __bool__(self) -> bool:
        return bool(self._active)

    def __iter__(self) -> Iterator[Active]:
        return iter(list(self._active.values()))

    def add(self, fault: Fault, until: float | None) -> Active:
        """Make a fault active, as the last in order. One of its kind must have been removed before."""
        self._active[fault.kind] = active = Active(fault, until)
        return active

    def remove(self, active: Active) -> bool:
        """End it; False when it has ended already."""
        if self._active.get(active.fault.kind) is not active:
            return False
        del self._active[active.fault.kind]
        return True

    def get(self, kind: str) -> Active | None:
        """The active fault of this kind."""
        return self._active.get(kind)

    def strike(self, method: str) -> Fault | None:
        """The first fault that a request suffers, counted; one that is used up then is over."""
        for active in self:
            if KINDS[active.fault.kind].each and active.strikes(method):
                active.hits += 1
                self.hits[active.fault.kind] += 1
                if active.used_up:
                    self.remove(active)
                return active.fault
        return None

    def as_json(self, now: float) -> dict[str, Any]:
        """What `GET /sim/fault` shows."""
        rows = [
            {
                **active.fault.as_json(),
                "hits": active.hits,
                "seconds_left": None if active.until is None else round(max(0.0, active.until - now), 3),
            }
            for active in self
        ]
        return {"faults": rows, "hits": dict(self.hits)}
