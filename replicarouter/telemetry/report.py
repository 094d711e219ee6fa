"""The ledger, the replicas and the requests in flight as plain documents, for the admin API."""

from typing import Any

from replicarouter.exchange import Exchange, Stage
from replicarouter.fleet.lifecycle import State
from replicarouter.fleet.replica import Replica
from replicarouter.fleet.verdict import proxy_limited
from replicarouter.telemetry.collector import Sources


def ledger_report(sources: Sources) -> dict[str, Any]:
    """Where every request is, beside what the engines say."""
    ledger, fleet, now = sources.ledger, sources.fleet, sources.clock()
    stages = {stage.label: ledger.total(stage) for stage in Stage}
    replicas = [replica_report(replica, sources, now) for replica in fleet]
    unexplained = [row["unexplained"] for row in replicas if row["unexplained"] is not None]
    counts = [ledger.connections_of(replica.row) for replica in fleet]
    busy = sum(count.busy for count in counts)
    ttft = sources.metrics.ttft.merged()
    finished: dict[str, int] = {"ok": 0}
    for labels, value in ledger.finished:
        finished[labels[3]] = finished.get(labels[3], 0) + value
    return {
        **stages,
        "accepted": sum(stages.values()),
        "connector": {
            "limit": sources.connector.limit,
            "waiting": ledger.waiting_for_slot,
            "busy": busy,
            "idle": sum(count.open for count in counts) - busy,
        },
        "proxy_limited": proxy_limited(ledger, fleet, now, fresh=sources.fresh),
        "unexplained": sum(unexplained) if unexplained else None,
        "received_total": sum(ledger.received().values()),
        "finished": finished,
        "ttft": {"count": ttft.count, "p50": ttft.quantile(0.5), "p90": ttft.quantile(0.9)},
        "replicas": replicas,
    }


def replica_report(replica: Replica, sources: Sources, now: float) -> dict[str, Any]:
    """One replica: what it is, what we believe of it, our counts and its engine's. `ejected_until` is in
    seconds from now."""
    reading = replica.fresh_reading(now, sources.fresh)
    engine = reading.engine if reading is not None else None
    return {
        "name": replica.name,
        "url": replica.settings.url,
        "state": replica.state.value,
        "why": replica.reason,
        "health": replica.health.value,
        "duty": replica.duty.value,
        "origin": replica.origin,
        "ejected_until": replica.ejected_until - now if replica.health is State.EJECTED else None,
        "trial": replica.trial,
        "cooling": replica.cooling(now),
        "stalled": replica.stalled,
        "models": [card["id"] for card in replica.cards or ()],
        "weight": replica.weight,
        "share": replica.share(now),
        "role": replica.settings.role,
        "labels": dict(replica.settings.labels),
        "engine": replica.engine,
        "engine_version": replica.engine_version,
        "connecting": replica.count(Stage.CONNECTING),
        "sent": replica.count(Stage.SENT),
        "streaming": replica.count(Stage.STREAMING),
        "outstanding": replica.outstanding,
        "running": engine.running if engine else None,
        "waiting": engine.waiting if engine else None,
        "kv_usage": engine.kv_usage if engine else None,
        "reading_age": now - replica.reading.at if replica.reading else None,
        "unexplained": reading.unexplained if reading else None,
    }


def request_report(exchange: Exchange, now: float) -> dict[str, Any]:
    """One request in flight."""
    exchange.refresh()
    return {
        "id": exchange.client_id.encode("utf-8", "replace").decode(),
        "upstream_id": exchange.upstream_id,
        "endpoint": exchange.endpoint,
        "model": exchange.model,
        "stage": exchange.stage.label,
        "replica": exchange.replica or None,
        "age": now - exchange.accepted_at,
        "attempts": exchange.attempts,
        "bytes_in": exchange.bytes_in,
        "bytes_out": exchange.bytes_out,
    }
