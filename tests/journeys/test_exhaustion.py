"""A router that runs out of file descriptors refuses or lets wait, and is itself again afterwards."""

import asyncio
import os
from pathlib import Path

import pytest

from tests.fakes.client import Client, chat
from tests.fakes.message import LAST_CHUNK
from tests.fakes.replica import SSE_HEAD, FakeReplica, event, held
from tests.fakes.served import Serve, Served
from tests.fakes.wire import eventually

CLIENTS = 400
LIMIT = 256
HOLDS = 2.0
"""Seconds that the streams of the wave go on."""


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def open_descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def close_wait(port: int) -> int:
    """Sockets of loopback at `port` whose peer has left, but not their owner."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    rows = [line.split()[:4] for line in lines]
    return sum(local.endswith(f":{port:04X}") and state == "08" for _, local, _, state in rows)


async def wave(router: Served, gate: asyncio.Event) -> tuple[list[Client], list[str]]:
    """Many streams at once: the clients, and what became of each when the gate has opened."""
    clients = [await router.begin(chat()) for _ in range(CLIENTS)]

    async def one(client: Client) -> str:
        answer = await client.answer(deadline=30.0)
        if answer.status == 503:
            answer.refused(503, "overloaded")
            assert answer.head.get("retry-after")
        return f"{answer.status} {answer.ended}"

    async def open_gate() -> None:
        await asyncio.sleep(HOLDS)
        gate.set()

    *fates, _ = await asyncio.gather(*(one(client) for client in clients), open_gate())
    return clients, [str(fate) for fate in fates]


async def test_wave_beyond_the_descriptors_is_refused_in_words(serve: Serve) -> None:
    """H80."""
    gate = asyncio.Event()
    alive = FakeReplica(held(SSE_HEAD + event("1"), gate, event("2") + LAST_CHUNK))
    dead = FakeReplica()
    router = await serve(alive, dead, flags=("--log-level", "info"), descriptors=LIMIT)
    assert f"descriptors  {LIMIT}" in router.output
    assert "file descriptors are fewer than" in router.output
    await dead.refuse()
    before = open_descriptors(router.process.pid)
    spent = cpu_seconds(router.process.pid)
    healthy = asyncio.ensure_future(watch_health(router, gate))
    clients, fates = await wave(router, gate)
    assert await healthy > 0
    assert set(fates) <= {"200 clean", "503 clean", "502 clean"}
    assert fates.count("200 clean") >= LIMIT // 4
    assert cpu_seconds(router.process.pid) - spent < 0.5 * HOLDS + 1.0
    assert len([line for line in router.output.splitlines() if "descriptors" in line]) < 10
    for client in clients:
        await client.closed()
    await eventually(lambda: close_wait(router.port) == 0, "no socket waits to be closed", deadline=10.0)
    answers = await asyncio.gather(*(router.ask(chat()) for _ in range(20)))
    assert [answer.status for answer in answers] == [200] * 20
    await router.settled()
    await eventually(
        lambda: open_descriptors(router.process.pid) <= before + 10, "the descriptors are back", deadline=10.0
    )
    assert "Traceback" not in router.output


async def watch_health(router: Served, gate: asyncio.Event) -> int:
    """Ask for `/health` on new connections until the gate opens; how often it was answered."""
    answered = 0
    while not gate.is_set():
        answered += (await router.get("/health")).status == 200
        await asyncio.sleep(0.1)
    return answered


@pytest.mark.parametrize("count", [300])
async def test_clients_that_say_nothing_do_not_shut_others_out(serve: Serve, count: int) -> None:
    """Their time for a head is bounded, and connections that idle are closed when others wait."""
    router = await serve(FakeReplica(), descriptors=LIMIT)
    idle = [await router.connect() for _ in range(count)]
    for client in idle:
        await client.send(chat())
    for client in idle:
        answer = await client.answer(deadline=30.0)
        assert answer.status in {200, 503}
    assert (await router.ask(chat(), deadline=15.0)).status == 200
