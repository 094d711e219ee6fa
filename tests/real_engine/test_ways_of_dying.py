"""Sixteen users stream while one of two real engines dies in every way there is, and is started again."""

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.real_engine.conftest import HASTY, StartRouter
from tests.real_engine.rig import HOST, EngineFleet, RouterProcess, answers, metric, total, wait_until
from tests.real_engine.users import CUT_SHORT, Users

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(240)]

USERS = 16
LONGEST = HASTY["timeouts.total"] + 5
"""Seconds in which every request ends: the configured limit, and time for a busy machine."""

SOON = 30.0
"""Seconds for what takes a few where nothing else runs."""

GAP = 5.0
"""Longest silence of the survivor, which serves sixteen users; some 0.5 s on a machine of two busy cores."""

DISCONNECTED = "replica_disconnected"
STALLED = frozenset({"idle_timeout", "response_head_timeout"})


@dataclass(frozen=True, slots=True)
class Way:
    """A way to die: what is done to the server, what the users whose requests it had may be told, for which
    reasons the router may set it aside, and whether `/health` still says that all is well."""

    strike: Callable[[EngineFleet, int], None]
    told: frozenset[str]
    reasons: frozenset[str]
    healthy: bool = False


WAYS = {
    "SIGKILL of the server": Way(
        lambda fleet, port: fleet.signal_server(port, signal.SIGKILL),
        told=frozenset({DISCONNECTED}),
        reasons=frozenset({DISCONNECTED}),
    ),
    "SIGKILL of the core": Way(
        lambda fleet, port: fleet.signal_core(port, signal.SIGKILL),
        # The engine's own error in the stream carries the code 500.
        told=frozenset({"500", DISCONNECTED}),
        reasons=frozenset({"in_band_error", "http_500", DISCONNECTED}),
    ),
    "SIGTERM": Way(
        lambda fleet, port: fleet.signal_server(port, signal.SIGTERM),
        # What happens to open responses is a race in vLLM: they are left hanging, or end in an error, or
        # regularly: those that ran with the reason "abort", those that waited without text or reason.
        told=STALLED | {"500", DISCONNECTED, *CUT_SHORT},
        reasons=frozenset({"stalled", "in_band_error", "http_500", "shutting_down", DISCONNECTED}),
    ),
    "SIGSTOP of the core": Way(
        lambda fleet, port: fleet.signal_core(port, signal.SIGSTOP),
        # One request may be on trial with it when it is killed in the end, or be about to be.
        told=STALLED | {DISCONNECTED},
        reasons=frozenset({"stalled", DISCONNECTED, "connect_failed", *STALLED}),
        healthy=True,
    ),
    "SIGSTOP of both": Way(
        lambda fleet, port: fleet.signal_all(port, signal.SIGSTOP),
        told=STALLED,
        reasons=frozenset({"stalled"}),
    ),
}


def outstanding(router: RouterProcess, replica: str) -> float:
    """Requests that the router has at a replica."""
    return total(router.port, "replicarouter_requests_outstanding", replica=replica)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_every_request_ends_explained_and_the_survivor_goes_on(
    fleet: EngineFleet, hasty: StartRouter, way: Way
) -> None:
    survivor, victim = fleet.ports[:2]
    living, dead = f"{HOST}:{survivor}", f"{HOST}:{victim}"
    router = hasty(survivor, victim)
    with Users(router.port, USERS) as users:
        wait_until(
            lambda: min(users.served_by(living), users.served_by(dead)) >= USERS // 2,
            "both serve",
            deadline=SOON,
        )
        struck = time.monotonic()
        way.strike(fleet, victim)
        try:
            out = wait_until(lambda: router.state(victim) != "ready", "its death is noticed", deadline=SOON)
            wait_until(lambda: outstanding(router, dead) == 0, "its requests have ended", deadline=SOON)
            freed = time.monotonic()
            healthy = answers(victim, "/health")
        finally:
            fleet.kill(victim)
            fleet.start([victim])
        started = time.monotonic()
        wait_until(lambda: users.served_by(dead, since=started) > 0, "it answers again", deadline=SOON)
        back = time.monotonic()
    wait_until(lambda: router.ledger()["accepted"] == 0, "nothing is left", deadline=SOON)
    longest = max(one.seconds for one in users.told)
    gap = users.longest_gap(living, struck, back)
    print(
        f"{users.outcomes()}; longest request {longest:.1f} s, longest gap {gap:.1f} s, "
        f"out after {out:.1f} s, free of requests after {freed - struck:.1f} s, "
        f"back {back - started:.1f} s after its start"
    )
    assert healthy is way.healthy
    assert users.outcomes().keys() <= way.told | {"ok"}
    assert longest < LONGEST
    assert gap < GAP
    assert all(one.outcome == "ok" for one in users.told if one.replica == living)
    assert_ledger_agrees(router, users)
    assert outstanding(router, dead) == outstanding(router, living) == 0
    name = "replicarouter_ejections_total"
    assert metric(router.port, name, replica=living) is None
    ejections = metric(router.port, name, replica=dead) or 0
    assert ejections == sum(metric(router.port, name, replica=dead, reason=one) or 0 for one in way.reasons)


def assert_ledger_agrees(router: RouterProcess, users: Users) -> None:
    """The router has counted what the users saw; an engine's own error is one word to it, and so is a stream
    that the engine gave up and ended regularly."""
    expected: dict[str, int] = {}
    for one in users.told:
        word = "upstream_error" if one.outcome in {"500", *CUT_SHORT} else one.outcome
        expected[word] = expected.get(word, 0) + 1
    assert router.outcomes() == expected
    assert total(router.port, "replicarouter_requests_total") == len(users.told)
