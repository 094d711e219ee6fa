"""Two real vLLM replicas and a router in front of them, shared by all tests of this folder."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import openai
import pytest

from tests.real_engine.build_venv import VARIABLE, default_venv, is_built
from tests.real_engine.rig import HOST, EngineFleet, RouterProcess, free_port, wait_until

SETTLE = 20.0
"""Seconds in which the engines finish what an earlier test left."""


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineFleet]:
    """Two vLLM servers."""
    place = default_venv()
    if not is_built(place):
        pytest.fail(
            f"no vLLM in {place}, or not the one that the lock file asks for: build it with "
            f"`python tests/real_engine/build_venv.py`, or point {VARIABLE} at one built so",
            pytrace=False,
        )
    fleet = EngineFleet(place / "bin" / "python", tmp_path_factory.mktemp("engines"))
    try:
        fleet.start([free_port(), free_port()])
        yield fleet
    finally:
        fleet.close()


@pytest.fixture(scope="session")
def router(fleet: EngineFleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RouterProcess]:
    """A router in front of both; without slow starts, which would outlast the tests that restart a server."""
    log = tmp_path_factory.mktemp("router") / "router.log"
    router = RouterProcess(fleet.ports, log, {"health.slow_start": 0})
    yield router
    router.close()


@pytest.fixture(autouse=True)
def idle(fleet: EngineFleet, router: RouterProcess) -> None:
    """Each test finds engines with nothing to do, and a router that knows it."""
    wait_until(fleet.is_idle, "the engines are idle", deadline=SETTLE)
    wait_until(router.sees_idle_fleet, "the router sees it", deadline=SETTLE)


StartRouter = Callable[..., RouterProcess]
"""Starts a router in front of the replicas on these ports, with these settings on top of the hasty ones."""

HASTY = {
    "health.interval": 0.5,
    "health.timeout": 1,
    "health.stall_after": 2.5,
    "health.stall_end": 4.5,
    "health.slow_start": 1,
    "scrape.interval": 0.5,
    "eject.base_seconds": 1,
    "timeouts.connect": 3,
    "timeouts.total": 30,
}
"""Settings that notice and forgive within seconds."""


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[StartRouter]:
    """Starts routers of a test's own, whose counters begin at zero."""
    with ExitStack() as stack:

        def start(*ports: int, **settings: object) -> RouterProcess:
            own = {name.replace("__", "."): value for name, value in settings.items()}
            router = RouterProcess(ports, tmp_path / f"router-{len(own)}.log", {**HASTY, **own})
            stack.callback(router.close)
            wait_until(
                lambda: all(router.state(port) == "ready" for port in ports), "all are ready", deadline=SETTLE
            )
            return router

        yield start


def _client(port: int) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"http://{HOST}:{port}/v1", api_key="unused", max_retries=0, timeout=30)


@pytest.fixture
def client(router: RouterProcess) -> Iterator[openai.OpenAI]:
    """A client of the router."""
    with _client(router.port) as client:
        yield client


@pytest.fixture
def direct(fleet: EngineFleet) -> Iterator[openai.OpenAI]:
    """A client of the first engine, past the router."""
    with _client(fleet.ports[0]) as client:
        yield client
