"""Answers that take minutes, under the default limits, on an event loop whose seconds are shorter."""

import asyncio
import json
import selectors
from collections.abc import Awaitable, Callable
from pathlib import Path

from replicarouter.app import Router
from replicarouter.settings import load_settings
from tests.fakes.client import chat, request
from tests.fakes.message import LAST_CHUNK
from tests.fakes.replica import OK, SSE_HEAD, Connection, FakeReplica, Received, event
from tests.fakes.running import free_port

SPEED = 100.0
"""Seconds that pass for the router, its libraries and its replicas in one second."""


class HastySelector(selectors.DefaultSelector):
    """Waits a fraction of the time it is asked to wait."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return super().select(timeout and timeout / SPEED)


class HastyLoop(asyncio.SelectorEventLoop):
    """A loop whose clock runs fast, so that every timer of whoever runs on it does."""

    def __init__(self) -> None:
        super().__init__(HastySelector())

    def time(self) -> float:
        return super().time() * SPEED


async def ask(port: int, raw: bytes) -> bytes:
    """The whole answer, until its connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(raw)
        return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


async def until_ready(port: int) -> None:
    while b" 200 " not in await ask(port, request("GET", "/ready", headers={"Connection": "close"})):
        await asyncio.sleep(1)


def with_hasty_router(folder: Path, replica: FakeReplica, journey: Callable[[int], Awaitable[None]]) -> None:
    """Run `journey` with the port of a router in front of `replica`; all of its settings about time that
    hold for requests are the default ones."""
    config = folder / "router.yaml"
    document = {
        "port": 0,
        "admin": {"port": free_port()},
        "replicas": [replica.settings],
        # Of a busy machine the two seconds of the default would leave little.
        "health": {"timeout": 100},
    }
    config.write_text(json.dumps(document))
    settings = load_settings(flags={}, environ={}, config=config).settings

    async def run() -> None:
        async with replica:
            router = Router(settings, clock=asyncio.get_running_loop().time)
            await router.start()
            try:
                await until_ready(router.port)
                await journey(router.port)
            finally:
                await router.stop()

    with asyncio.Runner(loop_factory=HastyLoop) as runner:
        runner.run(run())


def closing(**fields: object) -> bytes:
    return chat(headers={"Connection": "close"}, **fields)  # type: ignore[arg-type]


def test_answers_of_more_than_five_minutes_are_never_cut(tmp_path: Path) -> None:
    """H15: an event every ten seconds for 330 s, and a body that comes after 320 s."""

    async def script(received: Received, connection: Connection) -> None:
        if b"whole" in received.body:
            await asyncio.sleep(320)
            await connection.send(OK)
            return
        await connection.send(SSE_HEAD)
        for number in range(34):
            await connection.send(event(str(number)))
            await asyncio.sleep(10)
        await connection.send(event("[DONE]") + LAST_CHUNK)

    async def journey(port: int) -> None:
        stream, whole = await asyncio.gather(
            ask(port, closing()), ask(port, closing(stream=False, user="whole"))
        )
        body = b"".join(event(str(number)) for number in range(34)) + event("[DONE]") + LAST_CHUNK
        assert stream.endswith(b"\r\n\r\n" + body)
        assert whole.endswith(OK.partition(b"\r\n\r\n")[2])

    with_hasty_router(tmp_path, FakeReplica(script), journey)


def test_silence_of_minutes_before_and_inside_an_answer_is_waited_for(tmp_path: Path) -> None:
    """H16: two minutes before the first byte, 90 s between two events; the replica's gauges stand still."""

    async def script(_: Received, connection: Connection) -> None:
        await asyncio.sleep(125)
        await connection.send(SSE_HEAD + event("1"))
        await asyncio.sleep(90)
        await connection.send(event("[DONE]") + LAST_CHUNK)

    replica = FakeReplica(script)
    replica.probes.gauges = {"vllm:num_requests_running": 1.0}

    async def journey(port: int) -> None:
        answer = await ask(port, closing())
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.endswith(event("1") + event("[DONE]") + LAST_CHUNK)

    with_hasty_router(tmp_path, replica, journey)
    assert len(replica.requests) == 1
