"""What is left when a demonstration is over."""

from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from replicarouter.demo.figures import Seen
from replicarouter.demo.ledger import LedgerReading
from replicarouter.demo.text import flag, number
from replicarouter.diagnosis.judge import diagnose
from replicarouter.diagnosis.snapshot import Snapshot, without_buckets
from replicarouter.diagnosis.text import conclusion
from replicarouter.diagnosis.window import Window
from replicarouter.loadgen.report import Tally, percentile
from replicarouter.words import seconds_text


@dataclass(frozen=True, slots=True, kw_only=True)
class UserTotals:
    """The users' side of a whole run; times in seconds."""

    started: int
    answered: int
    in_flight: int
    failures: dict[str, int]
    ttft_p50: float | None
    ttft_p90: float | None
    gap_p50: float | None
    gap_p90: float | None

    @classmethod
    def of(cls, tally: Tally) -> "UserTotals":
        """The totals as they stand now."""
        return cls(
            started=tally.started,
            answered=tally.answered,
            in_flight=tally.in_flight,
            failures=dict(tally.failures),
            ttft_p50=percentile(tally.ttfts, 0.5),
            ttft_p90=percentile(tally.ttfts, 0.9),
            gap_p50=tally.gaps.quantile(0.5),
            gap_p90=tally.gaps.quantile(0.9),
        )


def summary(seen: Seen, totals: UserTotals, *, seconds: float) -> str:
    """The closing lines; the last says what limited."""
    failed = sum(totals.failures.values())
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(totals.failures.items()))
    lines = [
        f"after {seconds:.1f} s",
        f"  users    {number(totals.started)} requests: {number(totals.answered)} finished, "
        f"{number(failed)} failed, {number(totals.in_flight)} under way"
        + (f" (failed: {reasons})" if reasons else ""),
        *([f"  router   {_accounted(seen.last)}"] if seen.last else []),
        f"  TTFT     p50 {seconds_text(totals.ttft_p50)}, p90 {seconds_text(totals.ttft_p90)}",
        f"  ITL      p50 {seconds_text(totals.gap_p50)}, p90 {seconds_text(totals.gap_p90)}",
        (
            f"  peaks    {number(seen.most_running)} running in the engines, "
            f"{number(seen.most_connecting)} connecting, proxy_limited {flag(seen.proxy_limited)}"
        ),
        _limit(seen),
    ]
    return "\n".join(lines) + "\n"


def _limit(seen: Seen) -> str:
    # The first look sees the burst with which the users begin.
    pages = list(seen.pages)[1:] or list(seen.pages)
    if not pages:
        return "The router has told nothing."
    window = Window(
        [Snapshot.of(text_string_to_metric_families(without_buckets(page)), at) for at, page in pages]
    )
    return conclusion(window, diagnose(window))


def _accounted(last: LedgerReading) -> str:
    """Whether what came in is what has ended and what is still there."""
    missing = last.received - last.ended - last.accepted
    verdict = f"{missing:+d} NOT ACCOUNTED FOR" if missing else "all accounted for"
    return (
        f"{number(last.received)} received = {number(last.ended)} finished + "
        f"{number(last.accepted)} in flight: {verdict}"
    )
