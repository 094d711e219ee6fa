"""The ledger over HTTP, from a real router."""

import asyncio

from replicarouter.demo.ledger import LedgerReader
from tests.demo.conftest import MakeReading
from tests.fakes.client import HOST, chat
from tests.fakes.replica import SSE_HEAD, FakeReplica, held
from tests.fakes.running import StartRouter, free_port
from tests.fakes.wire import eventually


async def test_reading_says_what_the_router_says(start_router: StartRouter) -> None:
    replica = FakeReplica(held(SSE_HEAD, asyncio.Event()))
    replica.probes.gauges = {"vllm:num_requests_running": 5.0, "vllm:num_requests_waiting": 2.0}
    router = await start_router(replica, connector={"limit": 2})
    for _ in range(3):
        await router.begin(chat())
    await router.stage(streaming=2, connecting=1)

    async with LedgerReader(f"http://{HOST}:{router.admin_port}") as reader:

        async def with_engine_counts() -> bool:
            reading = await reader.read()
            return reading is not None and reading.running is not None

        await eventually(with_engine_counts, "the engine has been read")
        reading = await reader.read()
    assert reading is not None
    assert dict(reading.stages) == {"receiving": 0, "queued": 0, "connecting": 1, "sent": 0, "streaming": 2}
    assert (reading.accepted, reading.received, reading.ended) == (3, 3, 0)
    assert (reading.connector_limit, reading.connector_waiting) == (2, 1)
    assert (reading.running, reading.waiting) == (5.0, 2.0)
    (row,) = reading.replicas
    assert (row.name, row.state, row.outstanding) == (replica.name, "ready", 3)


async def test_router_that_is_not_there_gives_no_reading() -> None:
    async with LedgerReader(f"http://{HOST}:{free_port()}") as reader:
        assert await reader.read() is None
        assert await reader.page() is None


async def test_metrics_say_the_same(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica())
    async with LedgerReader(f"http://{HOST}:{router.admin_port}") as reader:
        page = await reader.page()
    assert page is not None
    assert "\nreplicarouter_requests_receiving 0" in page


async def test_another_port_gives_no_reading(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica())
    async with LedgerReader(f"http://{HOST}:{router.port}") as reader:
        assert await reader.read() is None


def test_sum_over_engines_is_unknown_while_one_is(reading: MakeReading) -> None:
    known, unknown = reading(running=3.0), reading(running=None, waiting=None)
    both = reading(replicas=known.replicas + unknown.replicas)
    assert (known.running, known.waiting) == (3.0, 0.0)
    assert (both.running, both.waiting) == (None, None)
