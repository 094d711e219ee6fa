"""For how long replicas have said nothing to requests that wait for them."""

from collections.abc import Mapping

from replicarouter.fleet.registry import Fleet
from replicarouter.fleet.work import NOTHING, Work


def silences(fleet: Fleet, works: Mapping[str, Work], now: float) -> dict[str, float]:
    """Seconds since each replica, by its name, got a request or gave a byte; 0 while it owes nothing.

    It owes something while a request is with its engine and could go on: its client has sent it whole, and
    takes what comes. Comments that a server sends by itself are no bytes of an answer.
    """
    found = {}
    for replica in fleet:
        asked_at = works.get(replica.name, NOTHING).asked_at
        found[replica.name] = max(0.0, now - max(asked_at, replica.heard_at)) if asked_at else 0.0
    return found
