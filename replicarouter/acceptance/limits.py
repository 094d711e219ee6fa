"""The settings that limit how many requests a router lets through, as its page tells them. No I/O."""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from replicarouter.acceptance.errors import Unreadable
from replicarouter.acceptance.pages import RouterPage
from replicarouter.acceptance.words import by_value

ASSUMED_MAX_NUM_SEQS = 256
"""What start-up assumes of replicas whose `max_num_seqs` is not configured."""

_EACH = "connector.limit_per_replica"
_ALL, _OWN = "admission.max_outstanding_per_replica", "replicas[].max_outstanding"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Whom a limit is for: a replica, or the fleet. `cap` is what the limit lets it have, `known` what its
    engines run by what is configured, `likely` that with the assumption for those of which nothing is."""

    who: str
    cap: float
    known: float
    likely: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A setting that limits. `told` says what it is, `off` how to do without; `lets` is what the narrowest
    pool may have at a time, in which so many replicas `share` it."""

    setting: str
    off: str
    told: str
    lets: float
    share: int
    holders: Sequence[Holder]

    def cure(self, wanted: float) -> str:
        """What to set it to, for so many requests at a time and for all that the engines run."""
        need = max(math.ceil(wanted / self.share), *(holder.likely for holder in self.holders))
        return f"{self.off}, or {need:.0f} at least"


def bounds(page: RouterPage, pools: Sequence[Collection[str]]) -> list[Bound]:
    """All limits that are set, the narrowest first. `pools` are the replicas of each model by name; with
    names that the page does not know, the pool is the whole fleet. Raises `Unreadable` without the limits.
    """
    fleet, total = _Fleet(page, pools), page.value("connector_limit")
    each = page.value("connector_limit_per_replica")
    if total is None or each is None:
        raise Unreadable("the router does not tell its connector limits")
    found = []
    if total:
        found.append(fleet.in_all(total))
    if each:
        caps = dict.fromkeys(fleet.names, each)
        found += fleet.for_each(_EACH, f"{_EACH} 0", f"{_EACH} is {each:.0f}", caps)
    caps = {labels["replica"]: most for labels, most in page.series("replica_outstanding_limit") if most}
    if len(caps) == len(fleet.names) and len(set(caps.values())) == 1:
        told = f"{_ALL} is {next(iter(caps.values())):.0f}"
        off = f"{_ALL} 0 (--max-outstanding 0; {_OWN} where that is given)"
        found += fleet.for_each(_ALL, off, told, caps)
    else:
        told = f"{_OWN} is {by_value({name: f'{cap:.0f}' for name, cap in caps.items()})}"
        found += fleet.for_each(_OWN, f"{_OWN} 0 ({_ALL} where a replica has none)", told, caps)
    return sorted(found, key=lambda bound: bound.lets)


def binding(found: Sequence[Bound], streams: int) -> list[Bound]:
    """Those that make some of so many streams wait, the narrowest first."""
    return [bound for bound in found if bound.lets < streams]


class _Fleet:
    """The replicas on the page, what their engines run, and which of them serve together."""

    def __init__(self, page: RouterPage, pools: Sequence[Collection[str]]) -> None:
        rows = page.series("replica_state")
        states = {labels["replica"]: labels["state"] for labels, holds in rows if holds}
        self.names = list(states)
        self._runs = {labels["replica"]: most for labels, most in page.series("replica_max_num_seqs")}
        ready = {name for name, state in states.items() if state == "ready"} or set(states)
        usable = [ready & set(pool) for pool in pools if pool and states.keys() >= set(pool)]
        self._pools = [pool for pool in usable if pool] or [ready]

    def in_all(self, total: float) -> Bound:
        known = sum(self._runs.get(name, 0.0) for name in self.names)
        likely = sum(self._runs.get(name, ASSUMED_MAX_NUM_SEQS) for name in self.names)
        return Bound(
            setting="connector.limit",
            off="connector.limit 0 (--connector-limit 0)",
            told=f"connector.limit is {total:.0f}",
            lets=total,
            share=1,
            holders=[Holder(who="the fleet", cap=total, known=known, likely=likely)],
        )

    def for_each(self, setting: str, off: str, told: str, caps: dict[str, float]) -> Iterator[Bound]:
        """The bound of a limit that each of these replicas has; none without any."""
        if not caps:
            return
        sums = [sum(caps.get(name, math.inf) for name in pool) for pool in self._pools]
        narrowest = self._pools[sums.index(min(sums))]
        yield Bound(
            setting=setting,
            off=off,
            told=told,
            lets=min(sums),
            share=max(1, len(narrowest & caps.keys())),
            holders=[
                Holder(
                    who=name,
                    cap=cap,
                    known=self._runs.get(name, 0.0),
                    likely=self._runs.get(name, ASSUMED_MAX_NUM_SEQS),
                )
                for name, cap in caps.items()
            ],
        )
