"""Where requests are and how they ended. In one reading the stages add up to those received and not ended."""

from collections.abc import Iterator

from replicarouter.exchange import Stage
from replicarouter.telemetry.family import Family, counter, gauge, number
from replicarouter.telemetry.sources import Sources

REPLICA_STAGES = (Stage.CONNECTING, Stage.SENT, Stage.STREAMING)


def read(sources: Sources) -> Iterator[Family]:
    """Read the ledger."""
    ledger, fleet = sources.ledger, sources.fleet
    received = [((endpoint,), count) for endpoint, count in ledger.received().items()]
    yield counter("requests_received", "Requests whose head was read.", ["endpoint"], received)
    yield counter(
        "requests",
        "Requests that ended, by how they ended.",
        ["endpoint", "model", "replica", "outcome"],
        ledger.finished,
    )
    yield number("requests_receiving", "Requests whose body is arriving.", ledger.receiving)
    queued = dict.fromkeys(fleet.pools, 0)
    # Requests may wait for a model that has lost its replicas.
    queued.update((model, waiting) for model, waiting in ledger.queued.items() if waiting)
    yield gauge(
        "requests_queued",
        "Requests waiting for a replica with room.",
        ["model"],
        [((model,), ledger.queued.get(model, 0)) for model in queued],
    )
    outstanding = [
        ((replica.name, stage.label), replica.count(stage)) for replica in fleet for stage in REPLICA_STAGES
    ]
    yield gauge(
        "requests_outstanding",
        "Requests that have a replica, by stage.",
        ["replica", "stage"],
        outstanding,
    )
    yield counter("attempts", "Attempts at replicas.", ["replica", "result"], ledger.attempts)
    yield counter(
        "answers",
        "Answers of engines that clients got to their end, by the class of their status, or 429.",
        ["replica", "kind"],
        sources.metrics.answers,
    )
    yield counter("retries", "Attempts after the first.", ["reason"], ledger.retries)
    yield counter("shed", "Requests refused for lack of room.", ["reason"], sources.metrics.shed)
    yield counter("client_gone", "Requests whose client left.", ["stage"], ledger.client_gone)
