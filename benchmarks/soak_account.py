"""The account of a soak: what users saw, what the router counted and what engines ran must agree."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.soak_chaos import KILLED_WORKER
from benchmarks.soak_fleet import Replica
from benchmarks.soak_users import CUT, HUNG, LEFT, LOST, MIXED, OK, Tally

WORKER_LOST = "worker_lost"
"""The outcome of requests whose worker of the router died."""

MOST_GROWTH = 2.0
"""MiB a minute that the router may grow after its warm-up."""

SHORTEST_TREND = 240.0
"""Seconds of samples below which growth is told but not judged: pools and caches still fill."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The router at one moment: seconds since the start, resident bytes, open descriptors."""

    at: float
    resident: int
    descriptors: int


@dataclass(slots=True)
class Report:
    """`zero` holds what must be zero, `facts` the rest."""

    zero: dict[str, int]
    facts: dict[str, Any]
    client: dict[str, int]
    router: dict[str, int]
    chaos: dict[str, int]
    examples: dict[str, list[str]] = field(default_factory=dict)

    @property
    def sound(self) -> bool:
        return not any(self.zero.values())

    def as_json(self) -> dict[str, Any]:
        return {"sound": self.sound, **asdict(self)}

    def table(self) -> str:
        """Everything as Markdown."""
        codes = sorted({*self.client, *self.router}, key=lambda name: (name != OK, name))
        outcomes = [[code, self.client.get(code, 0), self.router.get(code, 0)] for code in codes]
        parts = [
            _table(["must be zero", "found"], [[name, count] for name, count in self.zero.items()]),
            _table(["fact", "value"], [[name, value] for name, value in self.facts.items()]),
            _table(["outcome", "clients saw", "router counted"], outcomes),
            _table(["trouble", "times"], [[name, count] for name, count in sorted(self.chaos.items())]),
        ]
        for outcome in (LOST, MIXED, HUNG, "doubled"):
            parts += [f"{outcome}: {line}" for line in self.examples.get(outcome, ())]
        return "\n\n".join(parts)


def account(
    *,
    tally: Tally,
    outcomes: Mapping[str, int],
    replicas: Iterable[Replica],
    did: Mapping[str, int],
    rest: Mapping[str, int],
    samples: Sequence[Sample],
) -> Report:
    """Bring the counts together."""
    doubled = _doubled(replicas)
    client = dict(tally.outcomes)
    growth, spread = _growth(samples)
    # With a worker of the router go the requests it had, and connections that it had not heard of yet.
    killed = did.get(KILLED_WORKER, 0)
    unheard = max(0, tally.begun - sum(outcomes.values())) if killed else 0
    died_with_it = outcomes.get(WORKER_LOST, 0) + unheard
    zero = {
        "lost": max(0, client.get(LOST, 0) - died_with_it),
        "doubled": len(doubled),
        "mixed": client.get(MIXED, 0),
        "hung": client.get(HUNG, 0),
        **_disagreements(tally, outcomes),
        **rest,
    }
    if killed:
        for name in ("requests without an outcome", "cut answers that are not counted as failures"):
            zero[name] = max(0, zero[name] - unheard)
    if spread >= SHORTEST_TREND:
        zero["growth above the limit"] = int(growth > MOST_GROWTH)
    facts = {
        "requests": tally.begun,
        "ok": client.get(OK, 0),
        "left by the client": client.get(LEFT, 0),
        "ended with an explained error": sum(
            count for name, count in client.items() if name not in (OK, LEFT, CUT, LOST, HUNG, MIXED)
        ),
        "cut within an event or body": client.get(CUT, 0),
        "ended with a worker, counted and unheard of": f"{outcomes.get(WORKER_LOST, 0)} + {unheard}",
        "tokens": tally.tokens,
        "growth, MiB a minute": round(growth, 2),
        "resident each minute, MiB": _each_minute(samples),
        "most descriptors": max((one.descriptors for one in samples), default=None),
    }
    examples = {**tally.examples, "doubled": doubled[:20]}
    return Report(zero, facts, client, dict(outcomes), dict(did), examples)


def _disagreements(tally: Tally, router: Mapping[str, int]) -> dict[str, int]:
    """Where clients and the router tell different stories.

    A client that left does not know how its request would have ended, and one whose answer was cut was
    told nothing more: these may be behind outcomes that no client was told, a cut answer only behind
    failures. Who left at once may not have been heard at all.
    """
    client = tally.outcomes
    left = client.get(LEFT, 0)
    cut = client.get(CUT, 0) + client.get(LOST, 0) + client.get(HUNG, 0)
    told = {name: count for name, count in client.items() if name not in (LEFT, CUT, LOST, HUNG, MIXED)}
    untold = {name: max(0, count - told.get(name, 0)) for name, count in router.items()}
    failures = sum(count for name, count in untold.items() if name not in (OK, LEFT))
    counted = sum(router.values())
    return {
        "seen by clients and not counted by the router": sum(
            max(0, count - router.get(name, 0)) for name, count in told.items()
        ),
        "counted by the router and not seen by clients": max(0, sum(untold.values()) - left - cut),
        "cut answers that are not counted as failures": max(0, cut - failures),
        "requests without an outcome": max(0, tally.begun - left - counted),
        "outcomes without a request": max(0, counted - tally.begun),
    }


def _doubled(replicas: Iterable[Replica]) -> list[str]:
    """Requests that engines started more than once."""
    starts: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for replica in replicas:
        if not replica.journal.exists():
            continue
        for line in replica.journal.read_text().splitlines():
            at, _port, event, name = line.split(" ", 3)
            if event == "started" and name:
                starts[name].append((float(at), replica.name))
    return [f"{name}: {sorted(told)}" for name, told in starts.items() if len(told) > 1]


def _growth(samples: Sequence[Sample]) -> tuple[float, float]:
    """MiB a minute of resident memory, by least squares, and the seconds that were looked at."""
    if len(samples) < 3:
        return 0.0, 0.0
    mean_at = sum(one.at for one in samples) / len(samples)
    mean_size = sum(one.resident for one in samples) / len(samples)
    above = sum((one.at - mean_at) * (one.resident - mean_size) for one in samples)
    below = sum((one.at - mean_at) ** 2 for one in samples)
    return above / below * 60 / 2**20, samples[-1].at - samples[0].at


def _each_minute(samples: Sequence[Sample]) -> str:
    last = {int(one.at // 60): one.resident for one in samples}
    return " ".join(f"{size / 2**20:.0f}" for size in last.values())


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, cells))} |" for cells in lines)
