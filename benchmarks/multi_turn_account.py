"""What came of conversations under one policy: latency, stickiness, evenness and cache hits."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from benchmarks.multi_turn_users import Turn
from replicarouter.loadgen.report import percentile


@dataclass(frozen=True, slots=True)
class CacheCounts:
    """One engine's own counters: prompt tokens looked up in its prefix cache, and those found."""

    queries: float
    hits: float


@dataclass(frozen=True, slots=True)
class Departure:
    """What the removal of one replica did. `orphans` are the conversations it had, `others` the rest, of
    which `moved` were answered elsewhere than in their turn before."""

    replica: str
    orphans: int
    others: int
    moved: int

    @property
    def share_moved(self) -> float:
        """Of the others, those that moved."""
        return self.moved / self.others if self.others else 0.0


@dataclass(slots=True)
class Account:
    """One policy's figures; times in seconds, rates a second, the rest shares and ratios.

    `stuck` is the share of follow-up turns that were answered by the replica of their conversation's first
    turn. Imbalances are the busiest replica over the mean. `engine_hits` is the share of prompt tokens
    that engines found in their caches by their own counters, `told_hits` by the `usage` of the answers.
    The cores are those that the router and the whole machine kept busy.
    """

    policy: str
    requests: int
    failures: dict[str, int]
    seconds: float
    requests_per_second: float
    tokens_per_second: float
    first_ttft_p50: float | None
    first_ttft_p90: float | None
    ttft_p50: float | None
    ttft_p90: float | None
    itl_p50: float | None
    itl_p90: float | None
    stuck: float
    imbalance: float
    uncached_imbalance: float
    engine_hits: float
    told_hits: float
    affinity: dict[str, int]
    router_cores: float = 0.0
    machine_cores: float = 0.0
    departure: Departure | None = field(default=None)

    def note_failures(self, turns: Iterable[Turn]) -> None:
        """Count those of all turns."""
        self.failures = failures_of(turns)

    def as_json(self) -> dict[str, Any]:
        moved = {"share_moved": self.departure.share_moved} if self.departure else {}
        return {**asdict(self), **moved}


def failures_of(turns: Iterable[Turn]) -> dict[str, int]:
    """How many turns failed in which way."""
    return dict(Counter(turn.failure for turn in turns if turn.failure is not None))


def stuck_share(turns: Iterable[Turn]) -> float:
    """Of the turns after the first, how many met the replica of the first; 1 without any."""
    homes: dict[int, str] = {}
    follow_ups = stuck = 0
    for turn in sorted(turns, key=lambda one: one.number):
        home = homes.setdefault(turn.conversation, turn.replica)
        if turn.number > 1 and turn.failure is None:
            follow_ups += 1
            stuck += turn.replica == home
    return stuck / follow_ups if follow_ups else 1.0


def imbalance(amounts: Sequence[float]) -> float:
    """The largest over the mean; 1 when there is nothing."""
    return max(amounts) * len(amounts) / sum(amounts) if any(amounts) else 1.0


def departure(turns: Iterable[Turn], replica: str, number: int) -> Departure:
    """What changed from the turn before `number`, since when `replica` is gone."""
    before: dict[int, str] = {}
    after: dict[int, str] = {}
    for turn in turns:
        if turn.failure is None and turn.number in (number - 1, number):
            (after if turn.number == number else before)[turn.conversation] = turn.replica
    stayed = [one for one in after if before.get(one, replica) != replica]
    return Departure(
        replica=replica,
        orphans=sum(home == replica for home in before.values()),
        others=len(stayed),
        moved=sum(after[one] != before[one] for one in stayed),
    )


def busiest(turns: Iterable[Turn]) -> str:
    """The replica that answered most of them."""
    ((name, _),) = Counter(turn.replica for turn in turns).most_common(1)
    return name


def hit_share(counts: Iterable[CacheCounts]) -> float:
    """Of the tokens looked up, those found."""
    counts = list(counts)
    queries = sum(one.queries for one in counts)
    return sum(one.hits for one in counts) / queries if queries else 0.0


def account(
    policy: str,
    turns: Sequence[Turn],
    *,
    seconds: float,
    gaps: tuple[float | None, float | None],
    engines: Mapping[str, CacheCounts],
) -> Account:
    """Bring together what users saw (`turns`; `gaps` are p50 and p90) and what `engines` counted."""
    whole = [turn for turn in turns if turn.failure is None]
    requests = Counter(turn.replica for turn in whole)
    first = [turn.ttft for turn in whole if turn.number == 1 and turn.ttft is not None]
    later = [turn.ttft for turn in whole if turn.number > 1 and turn.ttft is not None]
    prompt = sum(turn.prompt_tokens for turn in whole)
    return Account(
        policy=policy,
        requests=len(turns),
        failures=failures_of(turns),
        seconds=seconds,
        requests_per_second=len(whole) / seconds,
        tokens_per_second=sum(turn.completion_tokens for turn in whole) / seconds,
        first_ttft_p50=percentile(first, 0.5),
        first_ttft_p90=percentile(first, 0.9),
        ttft_p50=percentile(later, 0.5),
        ttft_p90=percentile(later, 0.9),
        itl_p50=gaps[0],
        itl_p90=gaps[1],
        stuck=stuck_share(turns),
        imbalance=imbalance([requests[name] for name in engines]),
        uncached_imbalance=imbalance([one.queries - one.hits for one in engines.values()]),
        engine_hits=hit_share(engines.values()),
        told_hits=sum(turn.cached_tokens for turn in whole) / prompt if prompt else 0.0,
        affinity=dict(Counter(turn.affinity for turn in whole).most_common()),
    )


def table(accounts: Sequence[Account]) -> Table:
    """Policies side by side."""
    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    shown.add_column("", no_wrap=True)
    for one in accounts:
        shown.add_column(one.policy, justify="right", no_wrap=True)
    rows: list[tuple[str, Callable[[Account], str]]] = [
        ("requests, failed", lambda one: f"{one.requests}, {sum(one.failures.values())}"),
        ("first TTFT, ms p50 / p90", lambda one: _pair(one.first_ttft_p50, one.first_ttft_p90)),
        ("later TTFT, ms p50 / p90", lambda one: _pair(one.ttft_p50, one.ttft_p90)),
        ("ITL, ms p50 / p90", lambda one: _pair(one.itl_p50, one.itl_p90)),
        ("requests/s", lambda one: f"{one.requests_per_second:.1f}"),
        ("tokens/s", lambda one: f"{one.tokens_per_second:.0f}"),
        ("follow-ups on first replica", lambda one: f"{one.stuck:.1%}"),
        ("requests, max/mean", lambda one: f"{one.imbalance:.2f}"),
        ("uncached tokens, max/mean", lambda one: f"{one.uncached_imbalance:.2f}"),
        ("prefix hits, engines say", lambda one: f"{one.engine_hits:.1%}"),
        ("prefix hits, usage says", lambda one: f"{one.told_hits:.1%}"),
        ("affinity", lambda one: "\n".join(f"{name} {count}" for name, count in one.affinity.items())),
        ("cores busy, router / machine", lambda one: f"{one.router_cores:.2f} / {one.machine_cores:.2f}"),
    ]
    if any(one.departure for one in accounts):
        rows.append(("others moved by removal", _moved))
    for name, cell in rows:
        shown.add_row(name, *(cell(one) for one in accounts))
    return shown


def _pair(low: float | None, high: float | None) -> str:
    return " / ".join("-" if one is None else f"{1000 * one:.0f}" for one in (low, high))


def _moved(one: Account) -> str:
    left = one.departure
    return f"{left.moved} of {left.others}, {left.share_moved:.1%}" if left else "-"
