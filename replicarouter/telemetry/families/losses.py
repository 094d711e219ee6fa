"""What of the telemetry itself was lost."""

from collections.abc import Iterator

from replicarouter.telemetry.family import Family, counter
from replicarouter.telemetry.sources import Sources


def read(sources: Sources) -> Iterator[Family]:
    """Read how much was dropped."""
    dropped = sources.lines_dropped()
    yield counter("log_lines_dropped", "Log lines that were not written.", [], [((), dropped)])
    lost = sources.traces_dropped()
    yield counter("traces_dropped", "Requests whose spans no collector took.", [], [((), lost)])
