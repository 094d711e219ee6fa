"""Receipts: every relayed answer says who gave it and where its time went."""

import asyncio
import re

import pytest

from tests.fakes.client import Answer, chat, request
from tests.fakes.replica import (
    OK,
    SHORT_STREAM,
    Connection,
    FakeReplica,
    Received,
    Script,
    reply,
    sized,
)
from tests.fakes.running import StartRouter

TIMING = re.compile(r"queue;dur=(\d+(?:\.\d+)?), connect;dur=(\d+(?:\.\d+)?), head;dur=(\d+(?:\.\d+)?)")

ANSWERS: dict[str, Script] = {
    "sized": reply(OK),
    "stream": reply(SHORT_STREAM),
    "closed": reply(b"HTTP/1.1 200 OK\r\n\r\nx", then="fin"),
    "no-content": reply(b"HTTP/1.1 204 No Content\r\n\r\n"),
    "error": reply(sized(b"{}", status="400 Bad")),
    "own-timing": reply(sized(b"{}", headers="Server-Timing: engine;dur=1\r\n")),
}


def timing(answer: Answer) -> tuple[float, float, float]:
    """Milliseconds in the queue, connecting, and to the head."""
    (found,) = [match for value in answer.head.all("server-timing") if (match := TIMING.search(value))]
    queue, connect, head = found.groups()
    return float(queue), float(connect), float(head)


@pytest.mark.parametrize("script", ANSWERS.values(), ids=ANSWERS)
async def test_relayed_answer_names_its_replica_and_times(start_router: StartRouter, script: Script) -> None:
    replica = FakeReplica(script, name="engine-7")
    router = await start_router(replica)
    answer = await router.ask(chat())
    assert answer.head.all("x-replicarouter-replica") == ["engine-7"]
    assert answer.head.all("x-replicarouter-affinity") == ["none"]
    assert all(0 <= milliseconds < 5000 for milliseconds in timing(answer))


async def test_engines_own_timing_stays(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica(ANSWERS["own-timing"]))
    answer = await router.ask(chat())
    assert "engine;dur=1" in ", ".join(answer.head.all("server-timing"))


async def test_slow_engine_shows_in_its_own_part(start_router: StartRouter) -> None:
    async def script(_: Received, connection: Connection) -> None:
        await asyncio.sleep(0.15)
        await connection.send(OK)

    router = await start_router(FakeReplica(script))
    queue, connect, head = timing(await router.ask(chat()))
    assert head >= 140
    assert queue + connect < head


async def test_wait_for_a_connection_shows_in_its_own_part(start_router: StartRouter) -> None:
    async def script(_: Received, connection: Connection) -> None:
        await asyncio.sleep(0.15)
        await connection.send(OK)

    router = await start_router(FakeReplica(script), connector={"limit": 1})
    answers = await router.ask_each([chat()] * 2)
    waits = sorted(timing(answer)[1] for answer in answers)
    assert waits[0] < 100
    assert waits[1] >= 100


async def test_replica_may_be_kept_secret(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica(), expose_replica=False)
    answer = await router.ask(chat())
    assert answer.status == 200
    assert answer.head.get("x-replicarouter-replica") is None


async def test_receipts_of_a_replica_or_a_client_are_not_believed(start_router: StartRouter) -> None:
    """A name sent by the engine or the caller must not pass for the router's word."""
    forged = "X-Replicarouter-Replica: forged\r\nX-Replicarouter-Affinity: hit\r\n"
    replica = FakeReplica(reply(sized(b"{}", headers=forged)), name="true")
    router = await start_router(replica)
    answer = await router.ask(chat(headers={"X-Replicarouter-Replica": "forged"}))
    assert answer.head.all("x-replicarouter-replica") == ["true"]
    assert answer.head.all("x-replicarouter-affinity") == ["none"]


async def test_each_attempts_own_name_is_on_the_answer(start_router: StartRouter) -> None:
    down, live = FakeReplica(name="down"), FakeReplica(name="live")
    router = await start_router(down, live, policy="round-robin", health={"interval": 1000})
    await down.refuse()
    for _ in range(2):
        answer = await router.ask(chat())
        assert answer.head.get("x-replicarouter-replica") == "live"


async def test_own_answers_carry_no_receipts(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica())
    for answer in (
        await router.get("/v1/models"),
        await router.ask(chat(model="nope")),
        await router.ask(request("POST", "/nope", b"{}")),
    ):
        assert answer.head.get("x-replicarouter-replica") is None
        assert answer.head.get("server-timing") is None
