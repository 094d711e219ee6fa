"""Reading engines' own counts from a real server."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from replicarouter.fleet.fetch import Client
from replicarouter.fleet.ledger import Ledger
from replicarouter.fleet.registry import Fleet
from replicarouter.fleet.replica import Replica
from replicarouter.fleet.scrape import Scraper
from replicarouter.settings import ScrapeSettings
from tests.fakes.wire import eventually
from tests.fleet.conftest import Engine
from tests.scene import HandClock, replica_settings

VLLM = b'vllm:num_requests_running{engine="0"} 3\nvllm:num_requests_waiting{engine="0"} 2\n'
SGLANG = b'sglang:num_running_reqs{model_name="m"} 5\n'

Watch = Callable[..., tuple[Scraper, Replica]]


@pytest.fixture
def clock() -> HandClock:
    return HandClock(50.0)


@pytest.fixture
def watch(engine: Engine, client: Client, clock: HandClock) -> Watch:
    """A scraper over a fleet of the engine alone."""

    def make(interval: float = 3600.0, **own: Any) -> tuple[Scraper, Replica]:
        fleet = Fleet([replica_settings("a", **{"url": engine.url, **own})], Ledger())
        scraper = Scraper(fleet, client, ScrapeSettings(interval=interval), clock)
        return scraper, fleet.replicas[0]

    return make


async def test_a_reading_is_taken_with_its_moment(engine: Engine, watch: Watch) -> None:
    engine.says("/metrics", VLLM)
    scraper, replica = watch()
    await scraper.scrape(replica)

    assert replica.reading is not None
    assert (replica.reading.engine.running, replica.reading.engine.waiting) == (3, 2)
    assert (replica.reading.at, replica.engine) == (50.0, "vllm")


@pytest.mark.parametrize(
    ("configured", "page", "told", "running"),
    [
        ("auto", SGLANG, "sglang", 5),
        ("auto", b"other_metric 1\n", "generic", None),
        ("auto", b"", "generic", None),
        ("vllm", SGLANG, "vllm", None),
        ("generic", VLLM, "generic", None),
    ],
)
async def test_the_engine_is_told_by_its_page_unless_configured(
    engine: Engine, watch: Watch, configured: str, page: bytes, told: str, running: float | None
) -> None:
    engine.says("/metrics", page)
    scraper, replica = watch(engine=configured)
    await scraper.scrape(replica)

    assert replica.engine == told
    assert replica.reading is not None
    assert replica.reading.engine.running == running


@pytest.mark.parametrize("status", [404, 401, 500, 302])
async def test_a_page_that_cannot_be_had_leaves_the_last_reading(
    engine: Engine, watch: Watch, status: int
) -> None:
    engine.says("/metrics", VLLM)
    scraper, replica = watch()
    await scraper.scrape(replica)
    before = replica.reading
    engine.says("/metrics", VLLM, status=status)
    await scraper.scrape(replica)

    assert before is not None
    assert replica.reading is before


async def test_a_replica_that_refuses_has_no_reading(engine: Engine, watch: Watch) -> None:
    scraper, replica = watch()
    await engine.stop()
    await scraper.scrape(replica)

    assert replica.reading is None


async def test_a_page_that_does_not_come_is_given_up(engine: Engine, watch: Watch) -> None:
    scraper, replica = watch(interval=0.01)
    engine.silent = True
    await asyncio.wait_for(scraper.scrape(replica), 4)

    assert replica.reading is None


async def test_a_base_path_is_joined(engine: Engine, watch: Watch) -> None:
    engine.says("/base/metrics", VLLM)
    scraper, replica = watch(url=f"{engine.url}/base")
    await scraper.scrape(replica)

    assert replica.reading is not None


async def test_readings_go_on_until_stopped(engine: Engine, watch: Watch) -> None:
    engine.says("/metrics", VLLM)
    scraper, replica = watch(interval=0.01)
    scraper.start()
    await eventually(lambda: engine.times("/metrics") >= 3, "three readings")
    await scraper.stop()

    assert replica.reading is not None


async def test_a_page_that_comes_in_pieces_is_read_whole(engine: Engine, watch: Watch) -> None:
    engine.held = asyncio.Event()
    engine.says("/metrics", *VLLM.splitlines(keepends=True))
    scraper, replica = watch()
    scrape = asyncio.ensure_future(scraper.scrape(replica))
    await eventually(lambda: engine.times("/metrics"), "the page is on its way")
    await asyncio.wait((scrape,), timeout=0.05)
    engine.held.set()
    await scrape

    assert replica.reading is not None
    assert replica.reading.engine.waiting == 2
