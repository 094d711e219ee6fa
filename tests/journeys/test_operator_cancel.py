"""An operator ends a request, wherever it is: its client is told, its replica stops, nothing leaks."""

import asyncio
from typing import Any

import pytest

from tests.fakes.client import Answer, Client, chat
from tests.fakes.message import LAST_CHUNK
from tests.fakes.replica import OK, SSE_HEAD, FakeReplica, event, held
from tests.fakes.running import RunningRouter, StartRouter


async def cancel(router: RunningRouter, stage: str) -> Answer:
    """Cancel the youngest request in this stage."""
    rows = (await router.admin("/admin/requests")).json()["requests"]
    (*_, row) = [row for row in rows if row["stage"] == stage]
    return await router.admin(f"/admin/requests/{row['id']}/cancel", method="POST")


@pytest.mark.parametrize("stage", ["receiving", "queued", "connecting", "sent"])
async def test_before_its_answer_a_cancelled_request_is_refused(
    start_router: StartRouter, stage: str
) -> None:
    gate = asyncio.Event()
    replica = FakeReplica(held(b"", gate, OK))
    limits: dict[str, dict[str, Any]] = {
        "queued": {"admission": {"max_outstanding_per_replica": 1}},
        "connecting": {"connector": {"limit": 1}},
    }
    router = await start_router(replica, **limits.get(stage, {}))
    holder: Client | None = None
    if stage in limits:
        holder = await router.begin(chat(stream=False))
        await router.stage(sent=1)
    raw = chat(stream=False)
    client = await router.begin(raw[:-5] if stage == "receiving" else raw)
    await router.stage(**({"sent": 1, stage: 1} if holder else {stage: 1}))

    assert (await cancel(router, stage)).status == 202
    (await client.answer()).refused(403, "cancelled")
    if stage == "sent":
        await replica.requests[0].aborted()
    gate.set()
    if holder is not None:
        assert (await holder.answer()).status == 200
    ledger = await router.settled()
    assert ledger.finished["cancelled"] == 1
    assert len(replica.requests) == (stage != "receiving")
    # Its replica is not to blame, and takes the next one.
    assert (await router.ask(chat(stream=False))).status == 200
    assert (await router.metrics()).series("ejections_total") == []


async def test_a_cancelled_stream_says_so_and_does_not_end_well(start_router: StartRouter) -> None:
    gate = asyncio.Event()
    replica = FakeReplica(held(SSE_HEAD + event("1"), gate, event("2") + LAST_CHUNK))
    router = await start_router(replica)
    client = await router.begin(chat())
    await client.wire.expect(event("1"))
    assert (await cancel(router, "streaming")).status == 202
    answer = await client.answer()
    assert answer.ended == "dirty"
    assert b'"cancelled"' in answer.body.raw
    await replica.requests[0].aborted()
    ledger = await router.settled()
    assert ledger.finished == {"cancelled": 1}


async def test_what_has_ended_cannot_be_cancelled(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica())
    assert (await router.ask(chat(headers={"X-Request-Id": "mine"}))).status == 200
    for request_id in ("mine", "nobody"):
        answer = await router.admin(f"/admin/requests/{request_id}/cancel", method="POST")
        answer.refused(404, "unknown_request")


async def test_others_are_not_touched(start_router: StartRouter) -> None:
    gate = asyncio.Event()
    router = await start_router(FakeReplica(held(SSE_HEAD + event("1"), gate, LAST_CHUNK)))
    clients = [await router.begin(chat(headers={"X-Request-Id": name})) for name in ("a", "b", "c")]
    for client in clients:
        await client.wire.expect(event("1"))
    assert (await router.admin("/admin/requests/b/cancel", method="POST")).status == 202
    assert (await clients[1].answer()).ended == "dirty"
    gate.set()
    assert [(await clients[index].answer()).ended for index in (0, 2)] == ["clean", "clean"]
