"""What the ledger and the engines' readings say together."""

from replicarouter.fleet.ledger import HELD_TOO_LONG, Ledger
from replicarouter.fleet.lifecycle import State
from replicarouter.fleet.registry import Fleet


def proxy_limited(ledger: Ledger, fleet: Fleet, now: float, *, fresh: float) -> bool:
    """Whether the router makes requests wait while some ready engine has nothing waiting.

    A reading older than `fresh` seconds says nothing.
    """
    if ledger.longest_hold(now) <= HELD_TOO_LONG:
        return False
    for replica in fleet:
        reading = replica.fresh_reading(now, fresh)
        if replica.state is State.READY and reading is not None and reading.engine.waiting == 0:
            return True
    return False
