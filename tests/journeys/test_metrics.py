"""Metrics that an operator can build on: bounded whatever users send, and the router's queue told from the
engines'."""

import asyncio

import pytest

from tests.fakes.client import Client, chat, request
from tests.fakes.message import LAST_CHUNK
from tests.fakes.replica import SSE_HEAD, FakeReplica, event, held, sized
from tests.fakes.running import Metrics, RunningRouter, StartRouter
from tests.fakes.wire import eventually

FLOOD = 200
ODD_NAMES = [
    'quo"te',
    "back\\slash",
    "new\nline",
    "🦙",
    "x" * 5000,
    "",
    " ",
    "{}",
    'm1",model="m2',
    "m1\n# EOF",
]


async def test_nothing_that_users_write_becomes_a_label(start_router: StartRouter) -> None:
    """H76: models, paths, methods, users and sessions come and go; the page stays small and readable."""
    replica = FakeReplica()
    router = await start_router(replica)
    assert (await router.ask(chat())).status == 200
    before = (await router.get("/metrics")).body.entity.count(b"\n")
    client = await router.connect()
    for number in range(FLOOD):
        session = {"X-Session-Id": f"s-{number}", "X-Request-Id": f"r-{number}"}
        assert (await client.ask(chat(model=f"m-{number}"))).status == 404
        assert (await client.ask(request("POST", f"/unknown/{number}", b"{}"))).status == 404
        assert (await client.ask(chat(user=f"u-{number}", headers=session))).status == 200
        assert (await router.ask(request(f"METHOD{number}", "/v1/completions"))).status in {400, 405}
    for name in ODD_NAMES:
        (await client.ask(chat(model=name))).refused(404, "model_not_found")
    page = (await router.get("/metrics")).body.entity.decode()
    assert page.count("\n") <= before + 50
    metrics = Metrics(page)
    assert metrics.value("requests_total", model="m1", outcome="ok") == FLOOD + 1
    assert metrics.value("requests_total", outcome="ok") == FLOOD + 1
    assert metrics.value("requests_total", model="other") == FLOOD + len(ODD_NAMES)
    assert {labels["model"] for labels, _ in metrics.series("requests_total")} <= {"", "m1", "other"}


def sglang(running: int, waiting: int) -> bytes:
    return sized(
        f"sglang:num_running_reqs {running}.0\nsglang:num_queue_reqs {waiting}.0\n"
        "sglang:token_usage 0.1\n".encode()
    )


def vllm(running: int, waiting: int) -> dict[str, float]:
    return {"vllm:num_requests_running": running, "vllm:num_requests_waiting": waiting}


@pytest.mark.parametrize("page", [vllm, sglang], ids=["vllm", "sglang"])
async def test_routers_queue_is_told_from_the_engines(start_router: StartRouter, page: object) -> None:
    """H78: ten requests run, seven wait here, and what the engines say of themselves stands beside it."""
    assert page is vllm or page is sglang
    gate = asyncio.Event()
    replicas = [FakeReplica(held(SSE_HEAD + event("1"), gate, LAST_CHUNK)) for _ in range(2)]
    replicas[0].probes.gauges = page(3, 1)
    replicas[1].probes.gauges = page(4, 0)
    router = await start_router(*replicas, admission={"max_outstanding_per_replica": 5})
    running = [await router.begin(chat()) for _ in range(10)]
    for client in running:
        await client.wire.expect(event("1"))
    queued = [await router.begin(chat()) for _ in range(7)]
    await router.stage(streaming=10, queued=7)
    await eventually(lambda: engines_seen(router, replicas), "both engines' gauges")

    metrics = await router.metrics()
    for replica, engine in zip(replicas, [(3, 1), (4, 0)], strict=True):
        assert metrics.value("requests_outstanding", replica=replica.name) == 5
        assert metrics.value("engine_requests_running", replica=replica.name) == engine[0]
        assert metrics.value("engine_requests_waiting", replica=replica.name) == engine[1]
    assert metrics.value("requests_queued", model="m1") == 7
    assert (await router.ledger())["accepted"] == 17
    await waits_of_the_queue_are_counted(router, gate, running + queued)

    await replicas[1].refuse()
    replicas[1].reset_all()

    async def gone() -> bool:
        return not (await router.metrics()).series("engine_requests_running", replica=replicas[1].name)

    await eventually(gone, "the gauges of the engine that is gone disappear")
    assert (await router.metrics()).value("engine_requests_running", replica=replicas[0].name) == 3


async def engines_seen(router: RunningRouter, replicas: list[FakeReplica]) -> bool:
    metrics = await router.metrics()
    return all(metrics.series("engine_requests_running", replica=replica.name) for replica in replicas)


async def waits_of_the_queue_are_counted(
    router: RunningRouter, gate: asyncio.Event, clients: list[Client]
) -> None:
    """Let everything finish after a while, and assert that seven waits of that length are in the metrics."""
    waited = 0.6

    async def old() -> bool:
        rows = (await router.admin("/admin/requests")).json()["requests"]
        return bool(min(row["age"] for row in rows if row["stage"] == "queued") > waited)

    await eventually(old, "the queued requests are old")
    gate.set()
    for client in clients:
        assert (await client.answer()).ended == "clean"
    await router.settled()
    metrics = await router.metrics()
    below = {
        float(labels["le"]): count for labels, count in metrics.series("queue_seconds_bucket", model="m1")
    }
    assert metrics.value("queue_seconds_count", model="m1") == 17
    assert max(count for bound, count in below.items() if bound <= 0.5) == 10
    assert metrics.value("queue_seconds_sum", model="m1") >= 7 * waited
    assert metrics.value("request_seconds_sum") >= 17 * waited
