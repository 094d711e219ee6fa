"""What an engine answers and what the router's client gets are the same bytes."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.fakes.client import Answer, Client, request
from tests.real_engine.rig import EngineFleet, RouterProcess
from tests.real_engine.samples import SAMPLES, Sample, but_for_ids_and_times, essence
from tests.real_engine.tap import Tap

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(240)]

REQUEST_ID = "one-and-the-same"
LONG_ENOUGH = 30.0

RECEIPTS = {"x-request-id", "x-replicarouter-replica", "x-replicarouter-affinity", "server-timing"}
"""Fields that the router adds to an engine's answer."""

STREAMS = [name for name, sample in SAMPLES.items() if sample.body.get("stream") and sample.status == 200]
OTHERS = [name for name in SAMPLES if name not in STREAMS]


async def ask(port: int, sample: Sample, request_id: str = REQUEST_ID) -> Answer:
    client = await Client.connect(port)
    raw = request("POST", sample.path, sample.raw, {"X-Request-Id": request_id})
    answer = await client.ask(raw, LONG_ENOUGH)
    await client.closed()
    return answer


@pytest.mark.parametrize("name", OTHERS)
async def test_body_equals_that_of_a_direct_request(
    name: str, fleet: EngineFleet, router: RouterProcess
) -> None:
    sample = SAMPLES[name]
    direct, routed = await ask(fleet.ports[0], sample), await ask(router.port, sample)
    assert (direct.status, routed.status) == (sample.status, sample.status)
    assert but_for_ids_and_times(routed.body.entity) == but_for_ids_and_times(direct.body.entity)


@pytest.mark.parametrize("name", STREAMS)
async def test_stream_equals_that_of_a_direct_request_event_by_event(
    name: str, fleet: EngineFleet, router: RouterProcess
) -> None:
    sample = SAMPLES[name]
    direct, routed = await ask(fleet.ports[0], sample), await ask(router.port, sample)
    assert (direct.status, routed.status) == (200, 200)
    assert essence(routed.body.entity) == essence(direct.body.entity)
    assert len(routed.body.chunks) > 1
    assert routed.ended == "clean"


@pytest.mark.parametrize("name", ["chat", "chat stream", "prompt too long", "embeddings of a chat model"])
async def test_head_is_the_engines_and_the_receipts(
    name: str, fleet: EngineFleet, router: RouterProcess
) -> None:
    direct, routed = await ask(fleet.ports[0], SAMPLES[name]), await ask(router.port, SAMPLES[name])
    assert routed.head.names == direct.head.names | RECEIPTS
    for field in ("content-type", "server", "vary"):
        assert routed.head.all(field) == direct.head.all(field)


@pytest_asyncio.fixture
async def tapped(fleet: EngineFleet, tmp_path: Path) -> AsyncIterator[tuple[RouterProcess, Tap]]:
    """A router whose only engine is behind a tap."""
    async with Tap.before(fleet.ports[0]) as tap:
        router = await asyncio.to_thread(RouterProcess, [tap.port], tmp_path / "router.log")
        yield router, tap
        await asyncio.to_thread(router.close)


async def test_request_and_answer_pass_byte_for_byte_whatever_their_shape(
    tapped: tuple[RouterProcess, Tap],
) -> None:
    """On one and the same exchange nothing needs to be allowed for: chunks, ids and times included."""
    router, tap = tapped
    for number, (name, sample) in enumerate(SAMPLES.items()):
        tap.forget()
        answer = await ask(router.port, sample, request_id=f"tapped-{number}")
        heard = tap.exchange(f"tapped-{number}")
        assert answer.status == sample.status, name
        assert heard.to_engine.partition(b"\r\n\r\n")[2] == sample.raw, name
        assert heard.from_engine.partition(b"\r\n\r\n")[2] == answer.body.raw, name
