"""Passive health: who fails so many requests in a row that it is set aside, and for how long."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from replicarouter.fleet.lifecycle import Duty, State
from replicarouter.fleet.registry import Pool
from replicarouter.fleet.replica import Replica
from replicarouter.settings import EjectSettings


@dataclass(slots=True)
class Record:
    """What one replica has against it: failures in a row and ejections in a row.

    `unproven`: it was ejected, and has answered nothing since. `forgiven_at`: the time from which its
    ejections are forgotten.
    """

    failures: int = 0
    ejections: int = 0
    unproven: bool = False
    forgiven_at: float = 0.0


class Outliers:
    """Counts failures and ejections of replicas that have any. `now` is in seconds on the router's clock."""

    def __init__(self, settings: EjectSettings) -> None:
        self._settings = settings
        self._records: dict[Replica, Record] = {}

    def record(self, replica: Replica) -> Record | None:
        """What there is against it; None for most."""
        return self._records.get(replica)

    def failed(self, replica: Replica) -> bool:
        """Count a failure; True once there were `eject.consecutive_failures` in a row."""
        record = self._records.setdefault(replica, Record())
        record.failures += 1
        return record.failures >= self._settings.consecutive_failures

    def sentence(self, replica: Replica, now: float) -> float:
        """Count an ejection; its seconds: `eject.base_seconds`, twice as long each time, at most
        `eject.max_seconds`. A replica that stays in for as long as the longest one begins anew."""
        settings = self._settings
        record = self._records.setdefault(replica, Record())
        if now >= record.forgiven_at:
            record.ejections = 0
        # The exponent is bounded because a float is.
        seconds = min(settings.max_seconds, settings.base_seconds * 2.0 ** min(record.ejections, 64))
        record.ejections += 1
        record.failures = 0
        record.unproven = True
        record.forgiven_at = now + seconds + settings.max_seconds
        return seconds

    def forget(self, replica: Replica) -> None:
        """It has left the fleet."""
        self._records.pop(replica, None)

    def may_eject(self, replica: Replica, pools: Iterable[Pool]) -> bool:
        """Whether each of its pools can do without it.

        The panic rule: of the replicas of a pool that are on duty, at most `eject.max_share` (rounded down)
        are ejected at a time, and never the last one that is ready. A pool of one is never emptied, and
        who is ejected returns early when the others fail in some other way: an answer that is likely to
        fail is better than none.
        """
        for pool in pools:
            if replica not in pool.replicas:
                continue
            on_duty = [one for one in pool.replicas if one.duty is Duty.ACTIVE]
            ejected = sum(one.health is State.EJECTED for one in on_duty)
            if ejected + 1 > math.floor(self._settings.max_share * len(on_duty) + 1e-9):
                return False
            if all(one is replica for one in pool.ready):
                return False
        return True
