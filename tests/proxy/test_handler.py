"""The corridor's own promises, through a whole router; its journeys are in `tests/journeys/`."""

import asyncio

from tests.fakes.client import chat, request
from tests.fakes.message import LAST_CHUNK
from tests.fakes.replica import SSE_HEAD, FakeReplica, event, held, silence
from tests.fakes.running import StartRouter
from tests.fakes.wire import eventually


async def test_a_client_that_guesses_the_next_request_id_disturbs_nobody(start_router: StartRouter) -> None:
    gate = asyncio.Event()
    replica = FakeReplica(held(SSE_HEAD + event("1"), gate, LAST_CHUNK))
    router = await start_router(replica)
    first = await router.begin(chat())
    made = (await first.head()).get("x-request-id")
    assert made is not None
    prefix, _, serial = made.rpartition("-")
    guessing = await router.begin(chat(headers={"X-Request-Id": f"{prefix}-{int(serial, 16) + 2:x}"}))
    await guessing.wire.expect(b"data: 1")
    victim = await router.begin(chat())
    await victim.wire.expect(b"data: 1")

    assert len((await router.admin("/admin/requests")).json()["requests"]) == 3
    ids = [received.head.get("x-request-id") for received in await replica.received(3)]
    assert len(set(ids)) == 3
    gate.set()
    await router.settled()
    assert (await router.ledger()).finished == {"ok": 3}


async def test_every_exchange_is_counted_once_however_it_ends(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica())
    for raw in (
        chat(stream=False),
        chat(model="nope"),
        request("POST", "/v1/chat/completions", b"{bad"),
        request("GET", "/v1/chat/completions"),
        request("POST", "/nope", b"{}"),
        b"nonsense\r\n\r\n",
    ):
        await router.ask(raw)
    ledger = await router.settled()

    assert ledger.finished == {
        "ok": 1,
        "model_not_found": 1,
        "invalid_request": 2,
        "method_not_allowed": 1,
        "unknown_path": 1,
    }
    assert ledger["received_total"] == 6


async def test_a_retry_that_nobody_could_take_is_not_counted(start_router: StartRouter) -> None:
    replica = FakeReplica()
    router = await start_router(replica, health={"interval": 60})
    await replica.refuse()
    (await router.ask(chat())).refused(502, "connect_failed")
    metrics = await router.metrics()

    assert metrics.value("attempts_total") == 1
    assert metrics.value("retries_total") == 0


async def test_a_retry_is_counted_with_its_reason(start_router: StartRouter) -> None:
    dead, live = FakeReplica(), FakeReplica()
    router = await start_router(dead, live, policy="round-robin", health={"interval": 60})
    await dead.refuse()
    answers = [await router.ask(chat()) for _ in range(2)]
    metrics = await router.metrics()

    assert [answer.status for answer in answers] == [200, 200]
    assert metrics.series("retries_total") == [({"reason": "connect_failed"}, 1)]


async def test_an_attempt_that_the_total_time_ends_is_not_the_clients_doing(
    start_router: StartRouter,
) -> None:
    router = await start_router(FakeReplica(silence), timeouts={"total": 0.2})
    (await router.ask(chat())).refused(504, "total_timeout")
    metrics = await router.metrics()

    assert metrics.value("requests_total", outcome="total_timeout") == 1
    assert metrics.value("attempts_total", result="client_gone") == 0
    assert metrics.value("client_gone_total") == 0


async def test_a_connection_field_of_any_bytes_loses_no_connection(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica(), connector={"limit": 1})
    for _ in range(3):
        assert (await router.ask(chat(stream=False, headers={"Connection": "\xff, x"}))).status == 200

    ledger = await router.settled()
    assert ledger["connector"]["busy"] == 0


async def test_the_routers_own_answers_are_no_exchanges(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica())
    before = (await router.ledger())["received_total"]
    for target in (
        "/health",
        "/ready",
        "/metrics",
        "/version",
        "/v1/models",
        "/v1/models/m1",
        "/v1/models/x",
    ):
        await router.get(target)

    assert (await router.ledger())["received_total"] == before


async def test_an_answer_of_its_own_has_a_request_id_when_it_is_an_error(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica())
    for answer in (await router.get("/v1/models/nope"), await router.ask(request("POST", "/health", b"{}"))):
        assert answer.head.get("x-request-id")
    kept = await router.get("/v1/models/nope", headers={"X-Request-Id": "mine"})
    assert kept.head.get("x-request-id") == "mine"


async def test_the_routers_own_paths_are_never_relayed(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica(), ready=0, extra_paths=["/*"])

    async def ready() -> bool:
        return [row["state"] for row in (await router.ledger())["replicas"]] == ["ready"]

    await eventually(ready, "the replica is ready")
    for target in ("/health", "/ready", "/metrics", "/version"):
        assert (await router.get(target)).head.get("x-replicarouter-replica") is None
