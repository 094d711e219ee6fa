"""Requests that wait for a connection to their replica."""

from collections.abc import Iterator

from replicarouter.diagnosis.case import LIMIT_REACHED, Case
from replicarouter.diagnosis.verdict import Side, Verdict
from replicarouter.diagnosis.words import counted, number, power_of_two, seconds

HEADROOM = 2
"""Times what is in flight now that a limit should allow: it is there against mistakes, not to shape load."""

SLOW_SHARE = 0.1
"""Share of the requests in flight that may be connecting: opening a connection takes a millisecond of the
seconds that a request takes."""

SLOW_LEAST = 3
"""Requests that must be connecting all the time before connections are called slow to open."""

REFUSED_IN_THE_END = "after {limit} (admission.queue_timeout) a request that still waits is refused"


def connector_limit(case: Case) -> Iterator[Verdict]:
    """The limit is reached, requests wait for a slot, and the engines of some pool would take them."""
    waiting = case.waiting_for_slot
    if not case.held(waiting):
        return
    last = case.window.last
    limit = last.total("connector_limit")
    busy = case.window.course("connector_connections", state="busy").median
    connecting, wait = number(case.connecting.median), number(waiting.median)
    waits = "" if wait == connecting else f" ({wait} of them wait for a slot)"
    evidence = [
        (
            f"running {number(case.running)}, connecting {connecting}{waits}, of "
            f"{number(case.accepted.median)} in flight"
        ),
        engines_idle(case),
        *longest_wait(case),
    ]
    enough = power_of_two(HEADROOM * max(case.accepted.median, case.expected.concurrency or 0))
    if 0 < LIMIT_REACHED * limit <= busy:
        # The slots are one pool's as much as another's, whoever takes them.
        if all(case.busy(pool.takers) for pool in case.pools if pool.takers):
            return
        yield Verdict(
            "connector_limit",
            Side.ROUTER,
            "The router's connector limit holds requests back",
            (*evidence, f"{number(busy)} connections are busy, connector.limit is {number(limit)}"),
            f"connector.limit: now {number(limit)}; set it to at least {enough} (--connector-limit), "
            "or 0 for no limit",
            setting="connector.limit",
        )
        return
    each = last.total("connector_limit_per_replica")
    used = last.by("replica", "connector_connections", state="busy")
    most = max(used.values(), default=0.0)
    if case.busy([member for member in case.takers if used.get(member.name, 0.0) >= LIMIT_REACHED * most]):
        return
    yield Verdict(
        "connector_limit",
        Side.ROUTER,
        "The router's connector limit for each replica holds requests back",
        (*evidence, f"{number(most)} connections are busy at most at one replica, {number(busy)} in all"),
        f"connector.limit_per_replica: now {number(each)}; set it to 0 for no limit",
        setting="connector.limit_per_replica",
    )


def slow_connections(case: Case) -> Iterator[Verdict]:
    """Requests wait for connections that are being opened, below any limit."""
    opening = case.connecting
    least = max(SLOW_LEAST, SLOW_SHARE * case.accepted.median)
    if case.waiting_for_slot.most or opening.floor < least:
        return
    by_replica = case.window.courses("replica", "requests_outstanding", stage="connecting")
    name = max(by_replica, key=lambda one: by_replica[one].median)
    mean = case.window.mean("connect_seconds")
    evidence = [
        (
            f"connecting {number(opening.median)} of {number(case.accepted.median)} in flight, none for "
            "want of a slot"
        ),
        f"most at {name}: {number(by_replica[name].median)}",
    ]
    if mean is not None:
        evidence.append(f"{seconds(mean.seconds)} in the mean from choosing a replica to sending the request")
    yield Verdict(
        "slow_connections",
        Side.ELSEWHERE,
        "Connections to replicas are slow to open",
        tuple(evidence),
        f"look at the network to {name}, and at the length of its listen queue: its server accepts late",
        replica=name,
    )


def engines_idle(case: Case) -> str:
    """That the engines would take more, as far as they tell."""
    if all(member.waiting is None for member in case.takers):
        return "the engines do not tell whether they would take more"
    idle = sum(member.idle for member in case.takers)
    return (
        f"waiting in the engines: {number(case.waiting.median)}; {idle} of "
        f"{counted(len(case.takers), 'ready replica')} would take more at once"
    )


def longest_wait(case: Case) -> Iterator[str]:
    """How long the router makes requests wait, and for how long it may."""
    longest = case.window.course("held_seconds").most
    if not longest:
        return
    limit = case.window.last.total("queue_timeout_seconds")
    end = f"; {REFUSED_IN_THE_END.format(limit=seconds(limit))}" if limit else ""
    yield f"the longest wait was {seconds(longest)}{end}"
