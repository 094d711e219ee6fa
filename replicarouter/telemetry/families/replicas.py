"""What the router believes of each replica, and what it lets it have."""

from collections.abc import Iterator

from replicarouter.fleet.lifecycle import State
from replicarouter.telemetry.family import Family, counter, gauge
from replicarouter.telemetry.silences import silences
from replicarouter.telemetry.sources import Sources


def read(sources: Sources) -> Iterator[Family]:
    """Read the fleet."""
    fleet = sources.fleet
    states = [((replica.name, state.value), replica.state is state) for replica in fleet for state in State]
    yield gauge("replica_state", "1 for the state a replica is in.", ["replica", "state"], states)
    weights = [((replica.name,), replica.weight) for replica in fleet]
    yield gauge("replica_weight", "Configured weight.", ["replica"], weights)
    yield gauge(
        "replica_outstanding_limit",
        "Most requests outstanding at a replica, 0 for no limit.",
        ["replica"],
        [((replica.name,), replica.most) for replica in fleet],
    )
    yield gauge(
        "replica_max_num_seqs",
        "Most sequences its engine runs at once, as configured.",
        ["replica"],
        [((replica.name,), most) for replica in fleet if (most := replica.settings.max_num_seqs) is not None],
    )
    stalled = [((replica.name,), replica.stalled) for replica in fleet]
    yield gauge("replica_stalled", "1 while it has requests and does nothing.", ["replica"], stalled)
    yield gauge(
        "replica_silence_seconds",
        "Time since it got a request or gave a byte, 0 while no request waits for it.",
        ["replica"],
        [((name,), seconds) for name, seconds in silences(fleet, sources.works(), sources.clock()).items()],
    )
    ejections = sources.ledger.ejections
    yield counter("ejections", "Times a replica was set aside.", ["replica", "reason"], ejections)
