"""What the real `openai` client makes of the router's errors: it waits and asks again where that helps, and
never takes a cut answer for a whole one."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from tests.fakes.message import LAST_CHUNK
from tests.fakes.replica import (
    SSE_HEAD,
    Connection,
    FakeReplica,
    Received,
    event,
    held,
    reply,
    sized,
    stall,
)
from tests.fakes.running import RunningRouter, StartRouter

CHUNK = (
    '{"id":"c","object":"chat.completion.chunk","created":1,"model":"m1",'
    '"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}'
)
COMPLETION = sized(
    b'{"id":"c","object":"chat.completion","created":1,"model":"m1","choices":[{"index":0,'
    b'"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}]}'
)
STREAM = SSE_HEAD + event(CHUNK) + event("[DONE]") + LAST_CHUNK


async def ask(client: openai.AsyncOpenAI, **fields: Any) -> Any:
    return await client.chat.completions.create(
        model="m1", messages=[{"role": "user", "content": "hi"}], **fields
    )


async def contents(stream: AsyncIterator[Any], into: list[str]) -> None:
    async for chunk in stream:
        into += [chunk.choices[0].delta.content]


def client_of(router: RunningRouter, retries: int = 0) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=f"http://127.0.0.1:{router.port}/v1", api_key="sk-any", max_retries=retries, timeout=20
    )


@pytest.mark.parametrize("status", ["429 Too Many", "503 Busy"])
async def test_retry_after_of_an_engine_is_kept_to(start_router: StartRouter, status: str) -> None:
    """H26: the client comes back when the engine said, not sooner, and then is served."""
    busy = sized(b'{"error":{"message":"busy"}}', status=status, headers="Retry-After: 1\r\n")
    came: list[float] = []

    async def script(_: Received, connection: Connection) -> None:
        came.append(time.monotonic())
        await connection.send(busy if len(came) == 1 else COMPLETION)

    router = await start_router(FakeReplica(script))
    async with client_of(router, retries=2) as client:
        answer = await ask(client)
    assert answer.choices[0].message.content == "a"
    assert len(came) == 2
    assert came[1] - came[0] >= 1


async def test_full_queue_is_waited_out(start_router: StartRouter) -> None:
    """H26: of the router's own 429 the client reads when to come back, too."""
    gate = asyncio.Event()

    async def script(received: Received, connection: Connection) -> None:
        await held(b"", gate, COMPLETION)(received, connection)

    router = await start_router(
        FakeReplica(script), admission={"max_outstanding_per_replica": 1, "max_queued": 0}
    )
    async with client_of(router) as impatient, client_of(router, retries=2) as patient:
        first = asyncio.ensure_future(ask(impatient))
        await router.stage(sent=1)
        with pytest.raises(openai.RateLimitError) as refused:
            await ask(impatient)
        assert refused.value.code == "queue_full"
        assert int(refused.value.response.headers["retry-after"]) >= 1
        second = asyncio.ensure_future(ask(patient))
        while (await router.ledger()).finished.get("queue_full") != 2:
            await asyncio.sleep(0.01)
        gate.set()
        assert (await first).choices[0].message.content == "a"
        assert (await second).choices[0].message.content == "a"


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_cut_stream_raises(start_router: StartRouter, how: str) -> None:
    """H04: the text that came is there, and then an error, never a quiet end."""
    cut = asyncio.Event()

    async def script(_: Received, connection: Connection) -> None:
        await connection.send(SSE_HEAD + event(CHUNK))
        await cut.wait()
        connection.wire.close() if how == "fin" else connection.wire.reset()

    router = await start_router(FakeReplica(script))
    got: list[str] = []
    async with client_of(router) as client:
        stream = await ask(client, stream=True)
        reading = asyncio.ensure_future(contents(stream, got))
        while not got:
            await asyncio.sleep(0.001)
        cut.set()
        with pytest.raises(openai.APIError) as failure:
            await reading
        assert failure.value.code == "replica_disconnected"
        assert got == ["a"]
        await stream.close()


async def test_silent_stream_raises(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica(stall(SSE_HEAD + event(CHUNK))), timeouts={"idle": 0.2})
    got: list[str] = []
    async with client_of(router) as client:
        stream = await ask(client, stream=True)
        with pytest.raises(openai.APIError) as failure:
            await contents(stream, got)
        assert failure.value.code == "idle_timeout"
        assert got == ["a"]
        await stream.close()


async def test_error_that_an_engine_puts_into_its_stream_raises(start_router: StartRouter) -> None:
    """H05: the engine's own words reach the caller."""
    failure = event('{"error":{"message":"engine died","type":"server_error","code":500}}')
    replica = FakeReplica(reply(SSE_HEAD + event(CHUNK) + failure + event("[DONE]") + LAST_CHUNK))
    router = await start_router(replica)
    got: list[str] = []
    async with client_of(router) as client:
        stream = await ask(client, stream=True)
        with pytest.raises(openai.APIError, match="engine died"):
            await contents(stream, got)
        assert got == ["a"]
        await stream.close()


async def test_errors_have_the_classes_of_the_client(start_router: StartRouter) -> None:
    """H55 and others: what the router refuses itself is told apart by the client without reading texts."""
    replica = FakeReplica(reply(STREAM))
    router = await start_router(replica, FakeReplica(models=["m2"]), max_body_bytes=10_000)
    async with client_of(router) as client:
        with pytest.raises(openai.NotFoundError) as unknown:
            await client.chat.completions.create(model="nope", messages=[])
        assert unknown.value.code == "model_not_found"
        assert unknown.value.param == "model"
        assert unknown.value.request_id
        with pytest.raises(openai.APIStatusError) as large:
            await ask(client, user="x" * 20_000)
        assert (large.value.status_code, large.value.code) == (413, "body_too_large")
        await replica.refuse()
        with pytest.raises(openai.InternalServerError) as down:
            await ask(client)
        assert down.value.code in {"connect_failed", "no_replica"}
