"""The router itself: its version, its settings, its event loop and its process."""

from collections.abc import Iterator

from replicarouter.telemetry.family import PREFIX, Family, Numbers, counter, gauge, number
from replicarouter.telemetry.sources import Sources


def read(sources: Sources) -> Iterator[Family]:
    """Read what the operating system says of the process, and the router's own state."""
    for metric in sources.process():
        yield Numbers(
            metric.name.removeprefix(PREFIX),
            metric.documentation,
            (),
            [((), sample.value) for sample in metric.samples],
            counts=metric.type == "counter",
        )
    yield gauge("build_info", "The router's version.", ["version"], [((sources.version,), 1)])
    yield number("workers", "Processes that serve the port.", sources.workers)
    yield counter("worker_restarts", "Workers that ended and were replaced.", [], [((), sources.restarts())])
    reloaded = sources.reloaded()
    yield number("config_reload_success", "1 while the last configuration load worked.", reloaded)
    yield number("time_seconds", "Unix time at which this page was written.", sources.wall())
    yield number("event_loop_lag_seconds", "How late due work runs.", sources.lag())
