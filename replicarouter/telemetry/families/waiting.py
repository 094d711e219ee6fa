"""What the router lets in, and what it makes wait: connections, the queue, and who is held."""

from collections.abc import Iterator

from replicarouter.fleet.verdict import proxy_limited
from replicarouter.telemetry.family import Family, Labels, gauge, number
from replicarouter.telemetry.sources import Sources


def read(sources: Sources) -> Iterator[Family]:
    """Read the connections, the limits and the longest wait."""
    ledger, now = sources.ledger, sources.clock()
    yield number("client_connections", "Open connections of clients.", sources.clients())
    limits = sources.connector
    yield number("connector_limit", "Most connections to replicas, 0 for no limit.", limits.limit)
    yield number(
        "connector_limit_per_replica",
        "Most connections to one replica, 0 for no limit.",
        limits.limit_per_replica,
    )
    connections: list[tuple[Labels, float]] = []
    for replica in sources.fleet:
        counts = ledger.connections_of(replica.row)
        connections.append(((replica.name, "busy"), counts.busy))
        connections.append(((replica.name, "idle"), max(0, counts.open - counts.busy)))
    yield gauge("connector_connections", "Connections to replicas.", ["replica", "state"], connections)
    yield number("connector_waiting", "Requests waiting for a connector slot.", ledger.waiting_for_slot)
    admission = sources.admission()
    yield number("queue_limit", "Most requests that may wait in the queue.", admission.max_queued)
    yield number(
        "queue_timeout_seconds",
        "Longest wait in the queue or for a connector slot, 0 for no bound.",
        admission.queue_timeout,
    )
    yield number(
        "held_seconds",
        "How long the request has waited that the router itself makes wait the longest.",
        ledger.longest_hold(now),
    )
    yield number(
        "proxy_limited",
        "1 while the router holds requests back although an engine has nothing waiting.",
        proxy_limited(ledger, sources.fleet, now, fresh=sources.fresh),
    )
