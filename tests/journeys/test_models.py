"""Models: one list over all replicas, and each request goes where its model is."""

import asyncio
from typing import Any

import pytest

from replicarouter.policies import POLICIES
from tests.fakes.client import chat, chat_body, request
from tests.fakes.replica import FakeReplica, sized
from tests.fakes.running import RunningRouter, StartRouter
from tests.fakes.wire import eventually


async def listed(router: RunningRouter) -> list[str]:
    return sorted(card["id"] for card in (await router.get("/v1/models")).json()["data"])


async def test_list_is_merged_and_keeps_unknown_fields(start_router: StartRouter) -> None:
    first, second = FakeReplica(), FakeReplica()
    rich: dict[str, Any] = {
        "id": "m1",
        "max_model_len": 8192,
        "root": "org/m1",
        "parent": None,
        "owned_by": "vllm",
        "permission": [{"id": "p", "allow_sampling": True}],
        "x_new": {"deep": [1, 2.5]},
    }
    first.probes.models = [rich]
    cards: list[dict[str, Any]] = [
        {"id": "m1", "max_model_len": 4096},
        {"id": "org/m2:v1", "object": "model"},
    ]
    second.probes.models = cards
    router = await start_router(first, second)
    answer = await router.get("/v1/models")
    assert answer.status == 200
    page = answer.json()
    assert page["object"] == "list"
    assert sorted(card["id"] for card in page["data"]) == ["m1", "org/m2:v1"]
    (card,) = [card for card in page["data"] if card["id"] == "m1"]
    assert card == {"object": "model", **rich}
    assert (await router.get("/v1/models/m1")).json() == card
    assert (await router.get("/v1/models/org%2Fm2%3Av1")).json()["id"] == "org/m2:v1"
    assert (await router.get("/v1/models/org/m2:v1")).json()["id"] == "org/m2:v1"
    (await router.get("/v1/models/none")).refused(404, "model_not_found")


GARBAGE = {
    "not-json": sized(b"<html>"),
    "no-data": sized(b'{"object":"list"}'),
    "data-null": sized(b'{"data":null}'),
    "list": sized(b"[1,2]"),
    "cards-without-id": sized(b'{"data":[{"name":"m1"}]}'),
    "ids-that-are-numbers": sized(b'{"data":[{"id":1}]}'),
    "status-500": sized(b"{}", status="500 Broken"),
    "status-404": sized(b"{}", status="404 No"),
    "no-http": b"garbage\r\n\r\n",
    "cut": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
    "half-utf-8": sized(b'{"data":[{"id":"\xff"}]}'),
    "large": sized(b'{"data":[{"id":"' + b"x" * 5_000_000 + b'"}]}'),
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
async def test_garbage_from_one_replica_does_not_break_the_list(
    start_router: StartRouter, garbage: bytes
) -> None:
    sound, odd = FakeReplica(), FakeReplica()
    odd.probes.models = garbage
    router = await start_router(
        sound, odd, "http://127.0.0.1:9", ready=1, health={"interval": 0.1, "timeout": 0.2}
    )
    assert (await router.get("/v1/models/m1")).status == 200
    assert await listed(router) == ["m1"]
    for _ in range(4):
        assert (await router.ask(chat())).status == 200
    assert odd.requests == []
    assert (await router.ledger()).replica(odd)["state"] != "ready"


async def test_list_answers_at_once_although_a_replica_does_not(start_router: StartRouter) -> None:
    sound, mute = FakeReplica(), FakeReplica()
    mute.probes.answering.clear()
    router = await start_router(sound, mute, ready=1, health={"timeout": 0.3, "interval": 0.1})
    assert await listed(router) == ["m1"]
    assert (await router.ask(chat())).status == 200
    mute.probes.answering.set()
    await router.until_ready(2)


async def test_models_in_the_settings_are_not_asked_for(start_router: StartRouter) -> None:
    replica = FakeReplica(models=["named"])
    router = await start_router(replica)
    assert await listed(router) == ["named"]
    assert (await router.ask(chat(model="named"))).status == 200
    assert all(probe.target != "/v1/models" for probe in replica.probed)


@pytest.mark.parametrize("policy", POLICIES)
async def test_model_comes_and_goes_with_its_replica(start_router: StartRouter, policy: str) -> None:
    first, second = FakeReplica(), FakeReplica()
    first.probes.models = ["base"]
    second.probes.models = ["base"]
    router = await start_router(first, second, policy=policy)
    (await router.ask(chat(model="lora-a"))).refused(404, "model_not_found")
    second.probes.models = ["base", "lora-a"]

    async def served() -> bool:
        return await listed(router) == ["base", "lora-a"]

    await eventually(served, "the adapter is listed")
    before = len(second.requests)
    for _ in range(6):
        assert (await router.ask(chat(model="lora-a"))).status == 200
    assert len(second.requests) == before + 6
    assert first.requests == []
    for _ in range(12):
        assert (await router.ask(chat(model="base"))).status == 200
    assert len(first.requests) + len(second.requests) == before + 18
    second.probes.models = ["base"]

    async def unloaded() -> bool:
        return await listed(router) == ["base"]

    await eventually(unloaded, "the adapter is gone")
    (await router.ask(chat(model="lora-a"))).refused(404, "model_not_found")
    assert (await router.ask(chat(model="base"))).status == 200


UNKNOWN = ["nope", " m1 ", "M1", "", "m1\x00", "m" * 10_000, "m1/", "*", "../m1", "m1\n"]


@pytest.mark.parametrize("model", UNKNOWN)
@pytest.mark.parametrize("pools", [1, 2])
async def test_unknown_model_is_a_404_and_reaches_nobody(
    start_router: StartRouter, model: str, pools: int
) -> None:
    replicas = [FakeReplica(), *(FakeReplica(models=["m2"]) for _ in range(pools - 1))]
    router = await start_router(*replicas)
    error = (await router.ask(chat(model=model))).refused(404, "model_not_found")
    assert error["param"] == "model"
    assert len(error["message"]) < 1000
    assert all(replica.requests == [] for replica in replicas)
    metrics = await router.metrics()
    assert metrics.series("requests_total", outcome="model_not_found") == [
        (
            {
                "endpoint": "/v1/chat/completions",
                "model": "other",
                "replica": "",
                "outcome": "model_not_found",
            },
            1,
        )
    ]


async def test_unknown_names_add_no_series(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica())
    await router.ask(chat(model="first-unknown"))
    await router.ask(request("POST", "/unknown/0", b"{}"))
    await router.ask(chat())
    before = (await router.get("/metrics")).body.entity.count(b"\n")
    for number in range(30):
        await router.ask(chat(model=f"m-{number}", user=f"u-{number}"))
        await router.ask(request("POST", f"/unknown/{number}", b"{}"))
        await router.ask(request(f"METHOD{number}", "/v1/chat/completions"))
        await router.ask(chat(headers={"X-Request-Id": f"r-{number}", "X-Session-Id": str(number)}))
    page = (await router.get("/metrics")).body.entity
    assert page.count(b"\n") <= before + 20
    assert b"m-7" not in page
    assert b"/unknown" not in page


async def test_known_model_without_a_live_replica_is_a_503(start_router: StartRouter) -> None:
    only, other = FakeReplica(), FakeReplica(models=["m2"])
    router = await start_router(only, other)
    only.probes.health = 503

    async def down() -> bool:
        return (await router.get("/ready?model=m1")).status == 503

    await eventually(down, "the only replica is unhealthy")
    answer = await router.ask(chat())
    answer.refused(503, "no_replica")
    assert int(answer.head.get("retry-after") or 0) >= 1
    assert (await router.ask(chat(model="m2"))).status == 200
    (await router.ask(chat(model="nope"))).refused(404, "model_not_found")
    assert only.requests == []


async def test_nothing_is_unknown_before_every_replica_has_listed(start_router: StartRouter) -> None:
    known, loading = FakeReplica(), FakeReplica()
    loading.probes.models = []
    router = await start_router(known, loading, ready=1)
    answer = await router.ask(chat(model="m9"))
    answer.refused(503, "no_replica")
    assert answer.head.get("retry-after")
    loading.probes.models = ["m9"]
    await router.until_ready(2)
    assert (await router.ask(chat(model="m9"))).status == 200
    (await router.ask(chat(model="m10"))).refused(404, "model_not_found")


async def test_replica_that_loads_is_sent_nothing_until_it_is_ready(start_router: StartRouter) -> None:
    """Refused, then deaf to probes, then unhealthy, then without models, then ready."""
    old, new = FakeReplica(), FakeReplica()
    new.probes.health = 503
    new.probes.models = []
    health = {"timeout": 0.2, "interval": 0.05, "slow_start": 0}
    router = await start_router(old, new, ready=1, health=health)
    await new.refuse()

    async def phase(count: int) -> None:
        """Traffic while the newcomer is probed some more."""
        before = len(new.probed)
        for _ in range(10):
            assert (await router.ask(chat())).status == 200
        if count:
            await eventually(lambda: len(new.probed) >= before + count, "probes")
        assert new.requests == []
        (await router.ask(chat(model="m9"))).refused(503, "no_replica")

    await phase(0)
    new.probes.answering.clear()
    await new.listen()
    await phase(2)
    new.probes.answering.set()
    await phase(3)
    new.probes.health = 200
    await phase(3)
    assert (await router.ledger()).replica(new)["state"] == "loading"
    new.probes.models = ["m1", "m9"]
    await router.until_ready(2)
    assert (await router.ask(chat(model="m9"))).status == 200
    for _ in range(10):
        assert (await router.ask(chat())).status == 200
    assert len(new.requests) >= 2


async def test_router_starts_before_its_replicas_and_serves_when_they_come(
    start_router: StartRouter,
) -> None:
    replicas = [FakeReplica(), FakeReplica()]
    for replica in replicas:
        replica.probes.health = 503
    router = await start_router(*replicas, ready=0)
    assert (await router.get("/health")).status == 200
    (await router.get("/ready")).refused(503, "no_replica")
    (await router.ask(chat())).refused(503, "no_replica")
    assert (await router.get("/v1/models")).json() == {"object": "list", "data": []}
    replicas[1].probes.health = 200
    await router.until_ready(1)
    assert (await router.ask(chat())).status == 200


async def test_health_settings_count_probes(start_router: StartRouter) -> None:
    replica = FakeReplica()
    router = await start_router(
        replica, health={"interval": 0.02, "unhealthy_after": 3, "healthy_after": 3, "timeout": 1}
    )
    answers: list[int] = []

    async def state_after(status: int, count: int) -> str:
        """The state once exactly `count` more probes of `/health` were answered with `status`."""
        replica.probes.answering.clear()
        replica.probes.health = status
        before = len(replica.probed)
        await eventually(lambda: len(replica.probed) > before, "a probe waits")
        answers.append(status)
        replica.probes.answering.set()
        await eventually(lambda: len(replica.probed) > before + count * 2, "more probes")
        return str((await router.ledger()).replica(replica)["state"])

    assert await state_after(503, 4) == "unhealthy"
    assert await state_after(200, 4) == "ready"


async def test_one_failed_probe_changes_nothing(start_router: StartRouter) -> None:
    replica, other = FakeReplica(), FakeReplica()
    router = await start_router(replica, other, health={"interval": 0.05, "unhealthy_after": 1000})
    replica.probes.health = 500
    before = len(replica.probed)
    await eventually(lambda: len(replica.probed) > before + 3, "failed probes")
    assert (await router.ledger()).replica(replica)["state"] == "ready"
    answers = await asyncio.gather(*(router.ask(chat()) for _ in range(8)))
    assert [answer.status for answer in answers] == [200] * 8
    assert replica.requests


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/embeddings", "/v1/responses", "/tokenize"])
async def test_model_decides_on_every_path(start_router: StartRouter, path: str) -> None:
    first, second = FakeReplica(models=["m1"]), FakeReplica(models=["m2"])
    router = await start_router(first, second)
    for model, replica in (("m1", first), ("m2", second)):
        assert (await router.ask(request("POST", path, chat_body(model=model)))).status == 200
        assert len(replica.requests) == 1
