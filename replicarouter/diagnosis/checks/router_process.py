"""What the router's own process has: descriptors and processor time, and whether it is still the same."""

from collections.abc import Iterator

from replicarouter.diagnosis.case import Case
from replicarouter.diagnosis.verdict import Side, Verdict
from replicarouter.diagnosis.words import number, percent, power_of_two, seconds

DESCRIPTORS_NEAR = 0.85
"""Share of the descriptors from which on they are scarce: the router refuses clients at seven eighths of
what it can use, since the operating system would refuse in no words at all."""

DESCRIPTORS_FREE = 0.5
"""Share below which a refusal as overloaded must have had another reason."""

FEWEST_DESCRIPTORS = 4096
"""A limit below this is not worth setting."""

CORE_FULL = 0.9
"""Share of a core for each worker, which is all that an event loop can use: above it, requests wait for their
turn."""

CORE_IDLE = 0.5
"""Share below which work that is late was held up by other processes."""

LAG, LAG_LASTING = 0.1, 0.05
"""Seconds that due work is late in the middle of the window, and at least all the time: each token is late by
as much. One late turn is no limit, and happens on any machine."""

LAG_WINDOW = 3.0
"""Seconds of a window from which on it tells lateness: the page gives the worst of the last two seconds, so
that in a shorter one a single late turn is seen all the time."""

LAG_OF_OTHERS = 0.25
"""The same all the time for a router that has not used its core: a crowded machine makes everybody late, and
only where it is late by a quarter of a second is it the router that people wait for."""

SHORTEST = 0.5
"""Seconds of a window from which on it tells a share of a core."""

IMPOSSIBLE = 1.5
"""Share of a core that an event loop and its helpers cannot use: the time between two saved pages is then not
what was said."""


def file_descriptors(case: Case) -> Iterator[Verdict]:
    """Descriptors are nearly used up, or clients are refused as the router has no room."""
    window = case.window
    limit = window.last.total("process_max_fds")
    used = window.course("process_open_fds").most
    refused = window.growth("shed_total", reason="overloaded")
    share = used / limit if limit else 0.0
    evidence = [f"{number(used)} of {number(limit)} descriptors are open ({percent(share)})"] if limit else []
    if refused:
        evidence.append(f"{number(refused)} requests were refused as `overloaded`")
    if share >= DESCRIPTORS_NEAR or (refused and (not limit or share >= DESCRIPTORS_FREE)):
        connections = window.last.total("client_connections")
        busy = window.last.total("connector_connections")
        wanted = f"now {number(limit)}; " if limit else ""
        yield Verdict(
            "file_descriptors",
            Side.ROUTER,
            "The router runs out of file descriptors",
            (*evidence, f"connections: {number(connections)} of clients, {number(busy)} to replicas"),
            f"the open-files limit (`ulimit -n`, LimitNOFILE= in systemd): {wanted}raise it to at least "
            f"{max(FEWEST_DESCRIPTORS, power_of_two(2 * max(used, limit)))}",
            setting="LimitNOFILE",
        )
    elif refused:
        yield Verdict(
            "buffered_bytes",
            Side.ROUTER,
            "The router has no room for request bodies",
            tuple(evidence),
            "max_buffered_bytes: raise it, and leave room on the disk for temporary files",
            setting="max_buffered_bytes",
        )


def router_cpu(case: Case) -> Iterator[Verdict]:
    """The event loop has more to do than one core can, or gets too little of it."""
    lag = case.window.course("event_loop_lag_seconds")
    share = core_share(case)
    full = share is not None and share >= CORE_FULL
    starved = share is not None and share < CORE_IDLE
    lasting = LAG_OF_OTHERS if starved else LAG_LASTING
    long_enough = not case.window.rates or case.window.seconds >= LAG_WINDOW
    late = long_enough and lag.median >= LAG and lag.floor >= lasting
    if not full and not late:
        return
    workers = _workers(case)
    each = "" if workers == 1 else f" for each of {number(workers)} workers"
    used = [] if share is None else [f"it used {percent(share)} of a core{each}"]
    title, cure = _starved() if starved else _full(workers)
    yield Verdict(
        "router_cpu",
        Side.ROUTER,
        title,
        (*used, f"due work in its event loop runs {seconds(lag.median)} late"),
        cure,
        setting="workers" if full else "CPUAffinity",
    )


def _starved() -> tuple[str, str]:
    return (
        "The router gets too little of the processor",
        (
            "give the router a core of its own: other processes on its machine take it (systemd's "
            "CPUAffinity=, taskset)"
        ),
    )


def _full(workers: float) -> tuple[str, str]:
    have = "core is" if workers == 1 else "cores are"
    return (
        f"The router's processor {have} full",
        f"workers: now {number(workers)}; serve with more of them, each with a core of its own",
    )


def core_share(case: Case) -> float | None:
    """The share of a core that the router has used for each worker; None where that is not known."""
    window = case.window
    if window.seconds < SHORTEST or window.last.value("process_cpu_seconds_total") is None:
        return None
    share = window.growth("process_cpu_seconds_total") / window.seconds / _workers(case)
    return share if share <= IMPOSSIBLE else None


def _workers(case: Case) -> float:
    return case.window.last.value("workers") or 1.0


def router_restarted(case: Case) -> Iterator[Verdict]:
    """Its counters began anew."""
    if case.window.restarted:
        yield Verdict(
            "router_restarted",
            Side.NOTE,
            "The router was restarted between the pages",
            ("its counters began anew; what is said of rates counts from 0",),
            "measure again without a restart",
        )


def reload_failed(case: Case) -> Iterator[Verdict]:
    """It works with settings older than its file."""
    if case.window.last.value("config_reload_success") == 0:
        yield Verdict(
            "reload_failed",
            Side.NOTE,
            "The router could not load its settings again and keeps the old ones",
            ("config_reload_success is 0",),
            "see its log for what is wrong with the file (`replicarouter config check FILE`)",
        )
