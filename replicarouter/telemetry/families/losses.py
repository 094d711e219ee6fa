"""What of the telemetry itself was lost."""

from collections.abc import Iterator

from replicarouter.telemetry.family import Family, counter
from replicarouter.telemetry.logs import dropped_lines
from replicarouter.telemetry.sources import Sources


def read(sources: Sources) -> Iterator[Family]:
    """Read how much was dropped."""
    yield counter("log_lines_dropped", "Log lines that were not written.", [], [((), dropped_lines())])
    lost = sources.traces_dropped()
    yield counter("traces_dropped", "Requests whose spans no collector took.", [], [((), lost)])
