"""The families of the metrics page: one topic a file, all of them in `FAMILIES`."""

from collections.abc import Callable, Iterator

from replicarouter.telemetry.families import (
    engines,
    losses,
    process,
    replicas,
    requests,
    routing,
    times,
    waiting,
)
from replicarouter.telemetry.family import Family
from replicarouter.telemetry.sources import Sources

FAMILIES: tuple[Callable[[Sources], Iterator[Family]], ...] = (
    requests.read,
    waiting.read,
    engines.read,
    times.read,
    routing.read,
    replicas.read,
    process.read,
    losses.read,
)
"""In the order of the page."""

__all__ = ["FAMILIES"]
