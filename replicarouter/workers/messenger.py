"""What a worker finds out about replicas, on its way to the keeper, who draws the conclusions."""

from replicarouter.fleet.lifecycle import Duty
from replicarouter.fleet.replica import Replica
from replicarouter.workers.bus import Bus


class Messenger:
    """Stands where the verdicts, the prober and the fleet do in a single process. `now` is not sent on: a
    message takes less time than it could matter."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    def answered(self, replica: Replica) -> None:
        """It gave an answer that speaks for it; of interest only where something speaks against it."""
        if replica.on_record:
            self._bus.send("answered", replica.name, replica.row)

    def failed(self, replica: Replica, now: float, reason: str, *, leased_at: float | None = None) -> None:  # noqa: ARG002
        """It failed a request."""
        replica.on_record = True
        self._bus.send("failed", replica.name, replica.row, reason, leased_at)

    def busy(self, replica: Replica, now: float, retry_after: float | None) -> None:  # noqa: ARG002
        """It has no room."""
        replica.on_record = True
        self._bus.send("busy", replica.name, replica.row, retry_after)

    def leaving(self, replica: Replica, now: float) -> None:  # noqa: ARG002
        """Its engine is shutting down."""
        self._bus.send("leaving", replica.name, replica.row)

    def refused(self, replica: Replica) -> None:
        """It took no connection, or is loading."""
        self._bus.send("refused", replica.name, replica.row)

    def idle(self, replica: Replica) -> None:
        """Its last request has ended: if it is to be removed, it can go."""
        if replica.duty is Duty.REMOVED:
            self._bus.send("idle", replica.name, replica.row)
