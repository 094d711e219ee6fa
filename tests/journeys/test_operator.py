"""The operator's door and the metrics: the same ledger in every view, for those who may look."""

import asyncio

import pytest

from tests.fakes.client import chat, request
from tests.fakes.message import LAST_CHUNK
from tests.fakes.replica import OK, SSE_HEAD, FakeReplica, event, held, reply
from tests.fakes.running import Ledger, StartRouter
from tests.fakes.wire import eventually

VIEWS = ["/admin/ledger", "/admin/replicas", "/admin/requests"]


async def test_ledger_shows_every_stage_at_once(start_router: StartRouter) -> None:
    gate = asyncio.Event()
    streaming = FakeReplica(held(SSE_HEAD + event("1"), gate, LAST_CHUNK), models=["streams"])
    waiting = FakeReplica(held(b"", gate, OK), models=["waits"])
    router = await start_router(streaming, waiting, connector={"limit_per_replica": 2})
    clients = [await router.begin(chat(model="streams")) for _ in range(2)]
    clients += [await router.begin(chat(model="waits")) for _ in range(3)]
    uploading = await router.begin(chat(model="waits")[:-10])
    ledger = await router.stage(streaming=2, sent=2, connecting=1, receiving=1)
    assert ledger["accepted"] == 6
    assert ledger["queued"] == 0
    assert ledger.replica(streaming)["streaming"] == 2
    assert ledger.replica(waiting)["sent"] == 2
    assert ledger.replica(waiting)["connecting"] == 1
    assert ledger.replica(waiting)["outstanding"] == 3

    metrics = await router.metrics()
    assert metrics.value("requests_receiving") == 1
    for replica, stage, count in (
        (streaming, "streaming", 2),
        (waiting, "sent", 2),
        (waiting, "connecting", 1),
        (streaming, "sent", 0),
    ):
        assert metrics.series("requests_outstanding", replica=replica.name, stage=stage) == [
            ({"replica": replica.name, "stage": stage}, count)
        ]

    rows = (await router.admin("/admin/requests")).json()["requests"]
    assert sorted(row["stage"] for row in rows) == [
        "connecting",
        "receiving",
        "sent",
        "sent",
        "streaming",
        "streaming",
    ]
    for row in rows:
        assert row["age"] >= 0
        assert row["id"]
        if row["stage"] != "receiving":
            assert row["replica"] in {streaming.name, waiting.name}
            assert row["model"] in {"streams", "waits"}
    gate.set()
    await uploading.send(chat(model="waits")[-10:])
    for client in [*clients, uploading]:
        assert (await client.answer()).ended == "clean"


async def test_unexplained_is_what_the_engine_does_not_show(start_router: StartRouter) -> None:
    gate = asyncio.Event()
    replica = FakeReplica(held(SSE_HEAD + event("1"), gate, LAST_CHUNK))
    replica.probes.gauges = {"vllm:num_requests_running": 1.0, "vllm:num_requests_waiting": 1.0}
    router = await start_router(replica)
    clients = [await router.begin(chat()) for _ in range(5)]
    await router.stage(streaming=5)

    async def seen() -> Ledger | None:
        ledger = await router.ledger()
        return ledger if ledger.replica(replica)["unexplained"] == 3 else None

    ledger = await eventually(seen, "three requests are unexplained")
    assert ledger is not None
    assert ledger.replica(replica)["running"] == 1
    assert ledger.replica(replica)["waiting"] == 1
    assert ledger["unexplained"] == 3
    metrics = await router.metrics()
    assert metrics.value("engine_requests_running", replica=replica.name) == 1
    assert metrics.value("engine_requests_waiting", replica=replica.name) == 1
    assert metrics.value("requests_unexplained", replica=replica.name) == 3
    gate.set()
    for client in clients:
        assert (await client.answer()).ended == "clean"


async def test_old_readings_disappear(start_router: StartRouter) -> None:
    replica = FakeReplica()
    replica.probes.gauges = {"vllm:num_requests_running": 4.0}
    router = await start_router(replica)

    async def gauges() -> int:
        return len((await router.metrics()).series("engine_requests_running"))

    await eventually(gauges, "the engine's gauge")
    replica.probes.gauges = b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n"

    async def gone() -> bool:
        return await gauges() == 0

    await eventually(gone, "the old gauge is gone")
    assert (await router.ledger()).replica(replica)["running"] is None
    assert (await router.ask(chat())).status == 200


@pytest.mark.parametrize(
    "page",
    [
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n\xff\xfe not it",
        b"HTTP/1.1 200 OK\r\nContent-Length: 31\r\n\r\nvllm:num_requests_running NaN\n\n\n",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ncut",
    ],
)
async def test_engine_without_usable_metrics_is_served_all_the_same(
    start_router: StartRouter, page: bytes
) -> None:
    replica = FakeReplica()
    replica.probes.gauges = page
    router = await start_router(replica)
    before = len(replica.probed)
    await eventually(lambda: len(replica.probed) > before + 4, "some scrapes")
    assert (await router.ask(chat())).status == 200
    assert (await router.ledger()).replica(replica)["state"] == "ready"
    assert (await router.metrics()).value("replica_state", replica=replica.name, state="ready") == 1


async def test_gauges_exist_at_zero(start_router: StartRouter) -> None:
    replicas = [FakeReplica(), FakeReplica()]
    router = await start_router(*replicas)
    metrics = await router.metrics()
    for replica in replicas:
        for stage in ("connecting", "sent", "streaming"):
            assert metrics.series("requests_outstanding", replica=replica.name, stage=stage) == [
                ({"replica": replica.name, "stage": stage}, 0)
            ]
        assert metrics.value("replica_weight", replica=replica.name) == 1
        states = metrics.series("replica_state", replica=replica.name)
        assert {labels["state"]: value for labels, value in states} == {
            "loading": 0,
            "ready": 1,
            "unhealthy": 0,
            "ejected": 0,
            "draining": 0,
        }
    assert metrics.series("requests_queued", model="m1") == [({"model": "m1"}, 0)]
    for name in ("requests_receiving", "connector_waiting", "connector_limit", "proxy_limited"):
        assert metrics.series(name) == [({}, 0)], name
    assert len(metrics.series("build_info")) == 1


async def test_times_and_tokens_are_counted(start_router: StartRouter) -> None:
    stream = (
        SSE_HEAD
        + event('{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}')
        + event('{"choices":[{"index":0,"delta":{"content":"a"}}]}')
        + event('{"choices":[{"index":0,"delta":{"content":"b"}}]}')
        + event(
            '{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9,'
            '"prompt_tokens_details":{"cached_tokens":4}}}'
        )
        + event("[DONE]")
        + LAST_CHUNK
    )
    replica = FakeReplica(reply(stream))
    router = await start_router(replica)
    for _ in range(3):
        assert (await router.ask(chat())).ended == "clean"
    await router.settled()
    metrics = await router.metrics()
    assert metrics.value("queue_seconds_count", model="m1") == 3
    assert metrics.value("connect_seconds_count", replica=replica.name) == 3
    assert metrics.value("ttft_seconds_count", model="m1") == 3
    assert metrics.value("upstream_ttft_seconds_count", replica=replica.name) == 3
    assert metrics.value("request_seconds_count", endpoint="/v1/chat/completions", outcome="ok") == 3
    assert metrics.value("tokens_total", model="m1", kind="prompt") == 21
    assert metrics.value("tokens_total", model="m1", kind="completion") == 6
    assert metrics.value("tokens_total", model="m1", kind="cached") == 12
    assert metrics.value("affinity_total", policy="least-outstanding", result="none") == 3
    assert metrics.value("attempts_total", replica=replica.name) == 3
    assert (await router.ledger())["ttft"]["count"] == 3


async def test_metrics_page_is_the_same_on_both_doors(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica())
    assert (await router.ask(chat())).status == 200
    await router.settled()
    public, private = await router.get("/metrics"), await router.admin("/metrics")
    assert public.status == private.status == 200
    for page in (public, private):
        assert (page.head.get("content-type") or "").startswith("text/plain")
        names = {line.split("{")[0].split(" ")[0] for line in page.body.entity.decode().splitlines()}
        assert not [name for name in names if name.endswith("_created")]
        assert "replicarouter_requests_total" in names


@pytest.mark.parametrize("path", [*VIEWS, "/metrics"])
async def test_token_is_asked_for(start_router: StartRouter, path: str) -> None:
    router = await start_router(FakeReplica(), admin={"token": "s3cret-admin"})
    assert (await router.admin(path)).status == 200
    for wrong in (
        "",
        "Bearer wrong",
        "Bearer s3cret-admi",
        "Bearer s3cret-adminx",
        "Bearer",
        "Basic s3cret-admin",
        "s3cret-admin",
    ):
        answer = await router.admin(path, headers={"Authorization": wrong})
        answer.refused(401, "invalid_api_key")
        assert b"s3cret" not in answer.body.raw
    assert (await router.admin(path, headers={"Authorization": "bearer s3cret-admin"})).status == 200
    assert (await router.admin(path, headers={"Host": "anything.example"})).status == 200


@pytest.mark.parametrize("path", ["/health", "/ready"])
async def test_probes_of_the_admin_port_need_no_token(start_router: StartRouter, path: str) -> None:
    router = await start_router(FakeReplica(), admin={"token": "s3cret-admin"})
    assert (await router.admin(path, headers={"Authorization": ""})).status == 200


@pytest.mark.parametrize("path", VIEWS)
@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "evil.example:8081"},
        {"Host": ""},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
    ],
    ids=str,
)
async def test_without_a_token_only_this_machine_is_answered(
    start_router: StartRouter, path: str, headers: dict[str, str]
) -> None:
    router = await start_router(FakeReplica())
    answer = await router.admin(path, headers=headers)
    assert answer.status in {400, 401, 403}
    assert b"outstanding" not in answer.body.raw


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST:80", "[::1]:8081", "127.0.0.1:1"])
async def test_without_a_token_names_of_this_machine_are_answered(
    start_router: StartRouter, host: str
) -> None:
    router = await start_router(FakeReplica())
    assert (await router.admin("/admin/ledger", headers={"Host": host})).status == 200


async def test_admin_port_relays_nothing_and_the_main_port_shows_nothing(
    start_router: StartRouter,
) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    (await router.admin("/v1/chat/completions")).refused(404, "unknown_path")
    for view in VIEWS:
        (await router.get(view)).refused(404, "unknown_path")
    answer = await router.admin("/admin/ledger", method="POST")
    answer.refused(405, "method_not_allowed")
    assert "GET" in (answer.head.get("allow") or "")
    (await router.admin("/admin/nothing")).refused(404, "unknown_path")
    assert replica.requests == []


async def test_replicas_are_listed_with_what_is_known(start_router: StartRouter) -> None:
    replica = FakeReplica(name="one", weight=2.5, labels={"rack": "a"})
    keyed = FakeReplica(api_key="sk-hidden", models=["m2"])
    router = await start_router(replica, keyed)
    answer = await router.admin("/admin/replicas")
    first, second = answer.json()["replicas"]
    assert first["name"] == "one"
    assert first["url"] == replica.settings["url"]
    assert first["weight"] == 2.5
    assert first["models"] == ["m1"]
    assert first["state"] == "ready"
    assert second["models"] == ["m2"]
    assert b"sk-hidden" not in answer.body.raw


async def test_secrets_stay_out_of_what_the_router_says(start_router: StartRouter) -> None:
    replica = FakeReplica(api_key="sk-upstream-secret", models=["m1", "m2"])
    other = FakeReplica(models=["m3"])
    router = await start_router(replica, other, admin={"token": "admin-secret"})
    mine = {"Authorization": "Bearer sk-mine-secret"}
    await replica.refuse()
    answers = [
        await router.ask(chat(headers=mine)),
        await router.ask(chat(headers=mine, model="nope")),
        await router.ask(request("POST", "/nope", b"{}", mine)),
        await router.ask(request("POST", "/v1/completions", b"{bad", mine)),
        await router.get("/metrics"),
        await router.get("/v1/models"),
        *[await router.admin(view) for view in VIEWS],
    ]
    for answer in answers:
        assert b"secret" not in answer.head.raw + answer.body.raw
    # Clients learn no internal address either.
    for answer in answers[:4]:
        assert str(replica.port).encode() not in answer.head.raw + answer.body.raw


async def test_views_are_whole_while_requests_come_and_go(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica(), FakeReplica())
    work = asyncio.ensure_future(router.ask_each([chat()] * 100))
    while not work.done():
        for view in VIEWS:
            assert (await router.admin(view)).status == 200
        ledger = await router.ledger()
        stages = ("receiving", "queued", "connecting", "sent", "streaming")
        assert ledger["accepted"] == sum(ledger[stage] for stage in stages)
    assert [answer.status for answer in await work] == [200] * 100
