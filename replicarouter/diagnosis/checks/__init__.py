"""What can limit: one topic a module, one line a check, in the order of importance."""

from collections.abc import Callable, Iterable

from replicarouter.diagnosis.case import Case
from replicarouter.diagnosis.checks.admission import admission_limit
from replicarouter.diagnosis.checks.affinity import affinity_lost
from replicarouter.diagnosis.checks.balance import load_imbalance
from replicarouter.diagnosis.checks.client import client_limited, clients_leave, slow_uploads
from replicarouter.diagnosis.checks.connector import connector_limit, slow_connections
from replicarouter.diagnosis.checks.decoding import reasoning_first, spec_ceiling
from replicarouter.diagnosis.checks.engines import (
    engine_restarted,
    engines_differ,
    readings_missing,
    series_missing,
)
from replicarouter.diagnosis.checks.failures import (
    requests_failing,
    requests_mistaken,
    requests_shed,
    retries,
)
from replicarouter.diagnosis.checks.kv_cache import kv_pressure, not_cold
from replicarouter.diagnosis.checks.membership import no_replica, replica_out
from replicarouter.diagnosis.checks.queueing import engine_queueing
from replicarouter.diagnosis.checks.reconciliation import foreign_traffic, held_before_scheduler
from replicarouter.diagnosis.checks.router_process import (
    file_descriptors,
    reload_failed,
    router_cpu,
    router_restarted,
)
from replicarouter.diagnosis.checks.speed import slow_replica
from replicarouter.diagnosis.checks.stall import stalled_replica
from replicarouter.diagnosis.verdict import Verdict

Check = Callable[[Case], Iterable[Verdict]]
"""Looks for one thing; it must not raise on any part of a page."""

CHECKS: tuple[Check, ...] = (
    # Nothing works at all.
    no_replica,
    # The router holds requests back.
    file_descriptors,
    connector_limit,
    admission_limit,
    router_cpu,
    # Nothing comes.
    client_limited,
    slow_uploads,
    # Single replicas are behind.
    stalled_replica,
    replica_out,
    slow_replica,
    load_imbalance,
    slow_connections,
    # The engines have too much to do.
    kv_pressure,
    engine_queueing,
    requests_shed,
    held_before_scheduler,
    # What the numbers are about is not what was meant.
    foreign_traffic,
    not_cold,
    requests_failing,
    retries,
    affinity_lost,
    engine_restarted,
    engines_differ,
    series_missing,
    readings_missing,
    spec_ceiling,
    # Worth knowing.
    router_restarted,
    reload_failed,
    reasoning_first,
    requests_mistaken,
    clients_leave,
)
