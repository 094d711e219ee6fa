"""Nothing but liveness answers without a key, whatever path, method or spelling is tried."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.client import Answer, chat, chat_body, request
from tests.fakes.message import LAST_CHUNK
from tests.fakes.replica import SSE_HEAD, FakeReplica, event, held
from tests.fakes.running import StartRouter
from tests.fakes.served import Serve

KEY, OTHER = "sk-client-1", "sk-client-2"

PATHS = (
    "/v1/chat/completions",
    "/v1/chat/completions/",
    "//v1/chat/completions",
    "/V1/chat/completions",
    "/v1/%63hat/completions",
    "/v1/messages",
    "/v1/responses",
    "/v1/responses/resp_1",
    "/v1/realtime",
    "/v1/audio/transcriptions",
    "/invocations",
    "/inference/v1/generate",
    "/tokenize",
    "/rerank",
    "/score",
    "/v1/models",
    "/v1/models/m1",
    "/version",
    "/metrics",
    "/sleep",
    "/admin/ledger",
    "/admin/replicas",
    "/added",
    "/health/",
    "/health/../v1/models",
    "//health",
    "/%68ealth",
    "/ready/x",
    "/",
    "http://127.0.0.1/health",
)
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")

BAD: dict[str, dict[str, str]] = {
    "none": {},
    "wrong": {"Authorization": "Bearer sk-wrong"},
    "empty": {"Authorization": "Bearer "},
    "bare": {"Authorization": KEY},
    "basic": {"Authorization": f"Basic {KEY}"},
    "prefix": {"Authorization": f"Bearer {KEY[:-1]}"},
    "longer": {"Authorization": f"Bearer {KEY}1"},
    "two": {"Authorization": f"Bearer {KEY}\r\nAuthorization: Bearer {OTHER}"},
    "contradicting": {"Authorization": f"Bearer {KEY}", "x-api-key": OTHER},
    "elsewhere": {"Cookie": f"key={KEY}", "api-key": KEY, "Proxy-Authorization": f"Bearer {KEY}"},
    "loopback": {"X-Forwarded-For": "127.0.0.1", "X-Real-IP": "127.0.0.1", "Forwarded": "for=127.0.0.1"},
}
GOOD: dict[str, dict[str, str]] = {
    "bearer": {"Authorization": f"Bearer {KEY}"},
    "lower-case": {"authorization": f"bearer {KEY}"},
    "anthropic": {"x-api-key": KEY},
    "both": {"x-api-key": KEY, "Authorization": f"Bearer {KEY}"},
    "second": {"Authorization": f"Bearer {OTHER}"},
}


def raw(method: str, path: str, headers: dict[str, str]) -> bytes:
    body = None if method in ("GET", "HEAD") else chat_body()
    return request(method, path, body, headers)


def refused(answer: Answer, method: str) -> None:
    if method == "HEAD":
        assert answer.status == 401
    else:
        assert OTHER not in answer.refused(401, "invalid_api_key")["message"]
    assert answer.head.get("www-authenticate") == "Bearer"
    assert answer.head.get("x-replicarouter-replica") is None


async def locked(start_router: StartRouter, *replicas: FakeReplica, **options: Any) -> Any:
    keys = {"alice": KEY, "bob": OTHER}
    return await start_router(*replicas, ready=0, api_keys=keys, extra_paths=["/added"], **options)


@pytest.mark.parametrize("credentials", BAD.values(), ids=BAD.keys())
async def test_every_path_and_method_needs_a_key(
    start_router: StartRouter, credentials: dict[str, str]
) -> None:
    replica = FakeReplica()
    router = await locked(start_router, replica)
    for path in PATHS:
        for method in METHODS:
            client = await router.connect()
            await client.send(raw(method, path, credentials))
            if method == "HEAD":
                head = await client.head()
                assert head.status == 401, (method, path)
            else:
                refused(await client.answer(), method)
            await client.closed()
    assert replica.requests == []


async def test_an_upgrade_needs_a_key(start_router: StartRouter) -> None:
    replica = FakeReplica()
    router = await locked(start_router, replica)
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    answer = await router.get("/v1/realtime?model=m1", upgrade)
    refused(answer, "GET")
    assert replica.requests == []


@pytest.mark.parametrize("target", [f"/v1/models?key={KEY}", f"/v1/models?api_key={KEY}&access_token={KEY}"])
async def test_a_key_in_the_query_is_none(start_router: StartRouter, target: str) -> None:
    router = await locked(start_router, FakeReplica())
    refused(await router.get(target), "GET")


@pytest.mark.parametrize("path", ["/health", "/ready", "/ready?model=m1"])
@pytest.mark.parametrize("credentials", [*BAD.values(), *GOOD.values()], ids=[*BAD.keys(), *GOOD.keys()])
async def test_liveness_answers_everybody(
    start_router: StartRouter, path: str, credentials: dict[str, str]
) -> None:
    router = await locked(start_router, FakeReplica())
    assert (await router.get(path, credentials)).status == 200


@pytest.mark.parametrize("credentials", GOOD.values(), ids=GOOD.keys())
async def test_a_key_opens_and_stays_here(start_router: StartRouter, credentials: dict[str, str]) -> None:
    own = FakeReplica(api_key="sk-engine", models=["own"])
    none = FakeReplica(models=["none"])
    router = await locked(start_router, own, none)
    for model in ("own", "none"):
        answer = await router.ask(chat(model=model, headers=credentials))
        assert answer.status == 200
        assert answer.head.get("x-replicarouter-replica") is None
    assert (await router.get("/metrics", credentials)).status == 200
    assert own.requests[0].head.all("authorization") == ["Bearer sk-engine"]
    assert own.requests[0].head.get("x-api-key") is None
    assert none.requests[0].head.get("authorization") is None
    assert none.requests[0].head.get("x-api-key") is None


async def test_replicas_are_named_where_that_is_asked_for(start_router: StartRouter) -> None:
    replica = FakeReplica()
    router = await locked(start_router, replica, expose_replica=True)
    answer = await router.ask(chat(headers=GOOD["bearer"]))
    assert answer.head.get("x-replicarouter-replica") == replica.name


@pytest.mark.parametrize("exposed", [False, True])
async def test_readiness_tells_addresses_of_replicas_only_where_that_is_asked_for(
    start_router: StartRouter, exposed: bool
) -> None:
    replica = FakeReplica()
    replica.probes.health = 503
    router = await locked(start_router, replica, expose_replica=exposed)
    error = (await router.get("/ready")).refused(503, "no_replica")
    assert "/health answers 503" in error["message"]
    assert (replica.name in error["message"]) is exposed


async def test_refusals_are_counted_and_the_connection_serves_on(start_router: StartRouter) -> None:
    router = await locked(start_router, FakeReplica())
    client = await router.connect()
    refused(await client.ask(chat()), "POST")
    assert (await client.ask(chat(headers=GOOD["bearer"]))).status == 200
    assert (await router.settled()).finished == {"invalid_api_key": 1, "ok": 1}


async def test_no_continue_is_sent_before_a_refusal(start_router: StartRouter) -> None:
    replica = FakeReplica()
    router = await locked(start_router, replica)
    client = await router.connect()
    await client.send(
        request("POST", "/v1/completions", None, {"Expect": "100-continue", "Content-Length": "1000000"})
    )
    answer = await client.answer()
    assert answer.informational == []
    refused(answer, "POST")
    await client.gone()
    assert replica.requests == []


async def test_a_body_that_is_still_coming_does_not_hold_up_the_refusal(start_router: StartRouter) -> None:
    router = await locked(start_router, FakeReplica())
    client = await router.connect()
    await client.send(request("POST", "/v1/completions", None, {"Content-Length": "1000000"}) + b"{")
    refused(await client.answer(), "POST")


async def test_the_admin_port_takes_no_key_of_clients(start_router: StartRouter) -> None:
    router = await locked(start_router, FakeReplica(), admin={"token": "sk-operator"})
    for headers in (GOOD["bearer"], {"Authorization": ""}, {"X-Forwarded-For": "127.0.0.1"}):
        client_headers = {"Authorization": "Bearer sk-none", **headers}
        answer = await router.admin("/admin/replicas", headers=client_headers)
        assert answer.status == 401
    assert (await router.admin("/admin/replicas")).status == 200


async def test_without_keys_credentials_go_on_to_the_engine(start_router: StartRouter) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    await router.ask(chat(headers={"Authorization": "Bearer mine", "x-api-key": "mine"}))
    assert replica.requests[0].head.get("authorization") == "Bearer mine"
    assert replica.requests[0].head.get("x-api-key") == "mine"


STEERING = {
    "x-gateway-destination-endpoint": "127.0.0.1:9",
    "X-Prefiller-Host-Port": "127.0.0.1:9",
    "x-prefiller-hosts-ports": "127.0.0.1:9",
    "X-Backend-URL": "http://127.0.0.1:9",
}


async def test_what_would_steer_an_engine_stops_here(start_router: StartRouter) -> None:
    wanted, steered_to = FakeReplica(models=["m1"]), FakeReplica(models=["other"])
    router = await start_router(wanted, steered_to)
    address = f"127.0.0.1:{steered_to.port}"
    headers = {name: value.replace("127.0.0.1:9", address) for name, value in STEERING.items()}
    assert (await router.ask(chat(headers=headers))).status == 200
    assert [wanted.requests[0].head.get(name) for name in STEERING] == [None] * len(STEERING)
    assert steered_to.requests == []


FORWARDED = {"X-Forwarded-For": "198.51.100.9, 203.0.113.1", "X-Real-IP": "1.2.3.4", "Forwarded": "for=x"}


@pytest.mark.parametrize(
    ("proxies", "passed"), [([], True), (["127.0.0.0/8"], True), (["10.0.0.0/8", "::1/128"], False)]
)
async def test_who_says_where_a_request_comes_from(
    start_router: StartRouter, proxies: list[str], passed: bool
) -> None:
    """Where proxies are named, only they are heard, here and by the engines behind."""
    replica = FakeReplica()
    router = await start_router(replica, trusted_proxies=proxies)
    await router.ask(chat(headers=FORWARDED))
    head = replica.requests[0].head
    assert [head.get(name) for name in FORWARDED] == (list(FORWARDED.values()) if passed else [None] * 3)


async def test_keys_of_a_file_open_too_and_a_stream_outlives_their_use(
    start_router: StartRouter, tmp_path: Path
) -> None:
    path = tmp_path / "keys"
    path.write_text(f"# keys\nalice {KEY}\n{OTHER}\n")
    gate = asyncio.Event()
    replica = FakeReplica(held(SSE_HEAD + event("1"), gate, event("2") + LAST_CHUNK))
    router = await start_router(replica, ready=0, api_keys_file=str(path))
    client = await router.begin(chat(headers={"x-api-key": OTHER}))
    await client.wire.expect(event("1"))
    refused(await router.ask(chat(headers=BAD["wrong"])), "POST")
    gate.set()
    assert (await client.answer()).body.raw == event("1") + event("2") + LAST_CHUNK


async def test_a_bad_file_of_keys_ends_the_start_with_status_2(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "keys"
    path.write_text(f"alice {KEY}\nbob {OTHER} extra\n")
    monkeypatch.setenv("REPLICAROUTER_API_KEYS_FILE", str(path))
    served = await serve(FakeReplica(), up=False)
    assert await served.exit_status() == 2
    assert f"{str(path)!r} line 2" in served.output
    assert "sk-client" not in served.output
