"""Some thousand requests of every kind leave the router as it was before."""

import asyncio
import random
import re
from contextlib import suppress
from pathlib import Path

from tests.fakes.client import chat
from tests.fakes.message import LAST_CHUNK
from tests.fakes.replica import SSE_HEAD, Connection, FakeReplica, Received, event, sized
from tests.fakes.served import Serve, Served
from tests.fakes.wire import PeerGone, eventually

WARM, WAVES = 9, 15
"""Waves until memory stands still, and in all."""

OF_EACH = 200
"""Requests a wave: seven of ten are served, the others leave, are refused or are cut."""

MOST_GROWTH = 1000
"""Kilobytes; a body kept of each request would be more."""


async def script(received: Received, connection: Connection) -> None:
    if b'"user": "error' in received.body:
        await connection.send(sized(b"{}", status="500 Broken"))
    elif b'"user": "reset' in received.body:
        await connection.send(SSE_HEAD + event("1"))
        connection.wire.reset()
    else:
        await connection.send(SSE_HEAD + event("1"))
        await asyncio.sleep(0.002)
        await connection.send(event("[DONE]") + LAST_CHUNK)


async def wave(router: Served, number: int) -> None:
    chance = random.Random(number)
    kinds = ["fine"] * 70 + ["leaves"] * 15 + ["error"] * 10 + ["reset"] * 5
    gate = asyncio.Semaphore(40)

    async def one(place: int) -> None:
        kind = chance.choice(kinds)
        name = f"{kind}-{number}-{place}"
        raw = chat(user=name, pad=name * 200, headers={"X-Request-Id": name, "X-Session-Id": name})
        async with gate:
            client = await router.connect()
            await client.send(raw)
            if kind != "leaves":
                assert (await client.answer()).ended == ("dirty" if kind == "reset" else "clean")
            elif chance.random() < 0.5:
                with suppress(PeerGone):
                    await client.wire.expect(event("1"))
            await client.closed()

    await asyncio.gather(*(one(place) for place in range(OF_EACH)))
    await router.settled()


def resident(router: Served) -> int:
    """Kilobytes in memory."""
    found = re.search(r"VmRSS:\s+([0-9]+) kB", Path(f"/proc/{router.process.pid}/status").read_text())
    assert found is not None
    return int(found[1])


def descriptors(router: Served) -> int:
    return len(list(Path(f"/proc/{router.process.pid}/fd").iterdir()))


def threads(router: Served) -> int:
    return len(list(Path(f"/proc/{router.process.pid}/task").iterdir()))


async def test_thousands_of_requests_leave_nothing_behind(serve: Serve, tmp_path: Path) -> None:
    """H79, in small: memory, descriptors and threads do not grow, and the log has no complaint."""
    config = tmp_path / "quiet.yaml"
    # The replicas fail on purpose, and are to be asked all the same. What is kept of the latest decisions
    # takes longer to reach its bound than this lasts.
    config.write_text(
        "eject: {consecutive_failures: 1000000}\nconnector: {keepalive: 0.3}\n"
        "policy_options: {decisions_per_second: 0}\n"
    )
    replicas = [FakeReplica(script), FakeReplica(script)]
    router = await serve(*replicas, flags=("--config", str(config)))
    await router.until_ready(2)
    for number in range(WARM):
        await wave(router, number)
    before = resident(router), threads(router)
    for number in range(WARM, WAVES):
        await wave(router, number)
    grown = resident(router)
    assert grown < before[0] + MOST_GROWTH, f"{before[0]} kB have become {grown} kB"
    assert threads(router) == before[1]

    async def idle() -> bool:
        return bool((await router.ledger())["connector"]["idle"] == 0)

    await eventually(idle, "idle connections are closed")
    at_rest = descriptors(router)
    await wave(router, WAVES)
    await eventually(idle, "idle connections are closed")
    # Probes and scrapes of the moment have connections of their own.
    await eventually(lambda: descriptors(router) <= at_rest + 4, f"{at_rest} descriptors again")
    ledger = await router.settled()
    assert sum(ledger.finished.values()) == ledger["received_total"]
    assert (await router.metrics()).value("replica_state", state="ready") == 2
    router.process.terminate()
    assert await router.exit_status() == 0
    for complaint in ("Traceback", "never retrieved", "never awaited", "Unclosed", "unclosed"):
        assert complaint not in router.output
