"""How long a replica that said it is busy is preferred less. Busy is not dead: it stays a candidate."""

from replicarouter.fleet.replica import Replica

FIRST, LONGEST = 1.0, 8.0
"""Seconds of the first and of the longest cool-off of a replica that does not say how long."""

MOST = 60.0
"""Seconds of a `Retry-After` that are believed: a replica must not send itself away for a day."""


class Cooling:
    """Sets `cool_until` of replicas."""

    def __init__(self) -> None:
        self._steps: dict[Replica, float] = {}

    def busy(self, replica: Replica, now: float, retry_after: float | None) -> None:
        """Prefer it less for `retry_after` seconds; else for a second, doubled each time it is still busy."""
        if retry_after is not None:
            seconds = min(max(retry_after, 0.0), MOST)
        elif replica.cooling(now):
            # Many requests may have been refused at the same moment: that is one time.
            return
        else:
            seconds = self._steps.get(replica, FIRST)
            self._steps[replica] = min(LONGEST, 2 * seconds)
        replica.cool_until = max(replica.cool_until, now + seconds)

    def remembers(self, replica: Replica) -> bool:
        """Whether its next cool-off is not a first one."""
        return replica in self._steps

    def start_over(self, replica: Replica) -> None:
        """It takes requests: its next cool-off is a first one."""
        self._steps.pop(replica, None)
