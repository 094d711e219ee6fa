"""For how long replicas have said nothing to requests that wait for them."""

from replicarouter.exchange import Stage
from replicarouter.fleet.registry import Fleet
from replicarouter.fleet.work import quiet_since

WITH_ENGINE = frozenset((Stage.SENT, Stage.STREAMING))


def silences(fleet: Fleet, now: float) -> dict[str, float]:
    """Seconds since each replica, by its name, got a request or gave a byte; 0 while it owes nothing.

    It owes something while a request is with its engine and could go on: its client has sent it whole, and
    takes what comes. Comments that a server sends by itself are no bytes of an answer.
    """
    latest: dict[str, float] = {}
    for exchange in fleet.ledger.in_flight.values():
        if exchange.stage in WITH_ENGINE and not exchange.held:
            since = quiet_since(exchange)
            if since > latest.get(exchange.replica, 0.0):
                latest[exchange.replica] = since
    return {
        replica.name: max(0.0, now - max(latest[replica.name], replica.heard_at))
        if replica.name in latest
        else 0.0
        for replica in fleet
    }
