"""Whose a limit is that is not the router's, in the words of the runbook."""

from collections.abc import Mapping

from replicarouter.diagnosis.verdict import Side, Verdict

OWNERS: Mapping[str, frozenset[str]] = {
    "client": frozenset(("client_limited", "slow_uploads")),
    "engine": frozenset(
        (
            *("no_replica", "replica_out", "stalled_replica", "slow_replica", "slow_connections"),
            *("engine_restarted", "engines_differ", "requests_failing", "retries"),
            *("readings_missing", "series_missing"),
        )
    ),
    "too few engines": frozenset(
        ("engine_queueing", "kv_pressure", "held_before_scheduler", "spec_ceiling", "requests_shed")
    ),
    "measurement": frozenset(("foreign_traffic", "not_cold", "affinity_lost")),
}
"""By the codes of the verdicts. One that is not here has its owner in its cause."""


def owner(verdict: Verdict) -> str:
    """Whose it is, in a word or a few."""
    side = str(verdict.side.value)
    if verdict.side is not Side.ELSEWHERE:
        return side
    return next((name for name, codes in OWNERS.items() if verdict.code in codes), side)
