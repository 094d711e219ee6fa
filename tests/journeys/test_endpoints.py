"""Everything the engines offer to users passes, and nothing else does."""

import pytest

from replicarouter.protocol.endpoints import Body, Endpoints
from tests.fakes.client import request
from tests.fakes.replica import PROBED, FakeReplica, reply, sized
from tests.fakes.running import StartRouter

MODEL = b'{"model":"m1"}'

NATURAL = [
    ("/v1/chat/completions", b'{"model":"m1","messages":[]}'),
    ("/v1/completions", b'{"model":"m1","prompt":["a",[1,2]]}'),
    ("/v1/embeddings", b'{"model":"m1","input":"x"}'),
    ("/v1/embeddings", b'{"model":"m1","input":["x","y"]}'),
    ("/v1/embeddings", b'{"model":"m1","input":[[1,2],[3]]}'),
    ("/v1/rerank", b'{"model":"m1","query":"q","documents":["a"]}'),
    ("/rerank", b'{"model":"m1","query":"q","documents":["a"]}'),
    ("/v2/rerank", b'{"model":"m1","query":"q","documents":["a"]}'),
    ("/v2/embed", b'{"model":"m1","texts":["a"]}'),
    ("/v1/score", b'{"model":"m1","text_1":"a","text_2":"b"}'),
    ("/score", b'{"model":"m1","text_1":"a","text_2":"b"}'),
    ("/tokenize", b'{"model":"m1","prompt":"a"}'),
    ("/detokenize", b'{"model":"m1","tokens":[1]}'),
    ("/pooling", MODEL),
    ("/classify", MODEL),
    ("/v1/messages", b'{"model":"m1","max_tokens":1,"messages":[]}'),
    ("/v1/messages/count_tokens", b'{"model":"m1","messages":[]}'),
    ("/v1/responses", b'{"model":"m1","input":"x"}'),
    ("/v1/audio/speech", b'{"model":"m1","input":"x"}'),
    ("/inference/v1/generate", MODEL),
    ("/generate", b'{"text":"a","sampling_params":{}}'),
]


@pytest.mark.parametrize(("path", "body"), NATURAL)
async def test_endpoint_passes_with_its_natural_body(
    start_router: StartRouter, path: str, body: bytes
) -> None:
    raw = sized(bytes(range(256)), headers="X-Kind: binary\r\n").replace(b"application/json", b"audio/mpeg")
    replica = FakeReplica(reply(raw))
    router = await start_router(replica)
    answer = await router.ask(request("POST", path, body))
    assert answer.status == 200
    assert answer.head.get("content-type") == "audio/mpeg"
    assert answer.body.raw == bytes(range(256))
    assert replica.requests[0].target == path
    assert replica.requests[0].body == body
    assert (await router.metrics()).value("requests_total", endpoint=path, outcome="ok") == 1


ROWS = [
    (endpoint.label, method)
    for endpoint in Endpoints()
    for method, kind in endpoint.bodies.items()
    if kind is not Body.SESSION
]


@pytest.mark.parametrize(("label", "method"), ROWS)
async def test_every_row_of_the_table_is_relayed(start_router: StartRouter, label: str, method: str) -> None:
    replica, other = FakeReplica(), FakeReplica(models=["m2"])
    router = await start_router(replica, other)
    path = label.replace("{id}", "a-1")
    body = None if method in {"GET", "DELETE"} else MODEL
    kind = {"Content-Type": "application/json"}
    if path in {"/v1/audio/transcriptions", "/v1/audio/translations"}:
        body = b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nm1\r\n--b--\r\n'
        kind = {"Content-Type": "multipart/form-data; boundary=b"}
    if body is None:
        # With two pools a request that cannot name its model must say so.
        answer = await router.ask(request(method, path))
        assert answer.status in {200, 400, 404}
        return
    answer = await router.ask(request(method, path, body, kind))
    assert answer.status == 200
    assert [received.target for received in replica.requests] == [path]
    assert replica.requests[0].method == method
    assert replica.requests[0].body == body
    assert other.requests == []


@pytest.mark.parametrize(("label", "method"), [row for row in ROWS if row[1] in {"GET", "DELETE"}])
async def test_request_without_a_body_goes_to_the_only_pool(
    start_router: StartRouter, label: str, method: str
) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    path = label.replace("{id}", "resp_1") + "?stream=true"
    assert (await router.ask(request(method, path))).status == 200
    assert replica.requests[0].target == path
    assert replica.requests[0].method == method
    assert replica.requests[0].body == b""


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings", "/tokenize"])
async def test_wrong_method_is_told_the_right_one(start_router: StartRouter, path: str, method: str) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    client = await router.connect()
    answer = await client.ask(request(method, path, b"{}" if method == "PUT" else None))
    answer.refused(405, "method_not_allowed")
    assert answer.head.get("allow") == "POST"
    assert replica.requests == []


@pytest.mark.parametrize("path", ["/v1/models", "/health", "/ready", "/metrics", "/version"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_wrong_method_on_the_routers_own_paths(
    start_router: StartRouter, path: str, method: str
) -> None:
    router = await start_router(FakeReplica())
    answer = await router.ask(request(method, path, b"{}"))
    answer.refused(405, "method_not_allowed")
    assert "GET" in (answer.head.get("allow") or "").split(", ")


CONTROL = [
    "/sleep",
    "/wake_up",
    "/is_sleeping",
    "/reset_prefix_cache",
    "/reset_mm_cache",
    "/reset_encoder_cache",
    "/collective_rpc",
    "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter",
    "/load_lora_adapter",
    "/unload_lora_adapter",
    "/update_weights",
    "/update_weights_from_disk",
    "/update_weights_from_distributed",
    "/init_weights_update_group",
    "/release_memory_occupation",
    "/resume_memory_occupation",
    "/flush_cache",
    "/start_profile",
    "/stop_profile",
    "/abort_request",
    "/scale_elastic_ep",
    "/server_info",
    "/get_server_info",
    "/pause",
    "/resume",
    "/load",
    "/ping",
    "/invocations",
    "/docs",
    "/openapi.json",
    "/admin/ledger",
    "/admin/replicas",
    "/",
    "/v1",
    "/v1/",
    "/v1/chat",
    "/v1/chat/completions/",
    "/V1/chat/completions",
    "/v1/unknown",
]


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("path", CONTROL)
async def test_unknown_and_control_paths_are_refused(
    start_router: StartRouter, path: str, method: str
) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    client = await router.connect()
    answer = await client.ask(request(method, path, MODEL if method == "POST" else None))
    answer.refused(404, "unknown_path")
    assert replica.requests == []
    assert all(probe.target in PROBED for probe in replica.probed)


async def test_extra_paths_are_relayed(start_router: StartRouter) -> None:
    replica = FakeReplica()
    router = await start_router(replica, extra_paths=["/custom", "/plugins/*"])
    for target in ("/custom?x=1", "/plugins/a", "/plugins/a/b?c"):
        assert (await router.ask(request("POST", target, b"{}"))).status == 200
    assert (await router.ask(request("GET", "/plugins/a"))).status == 200
    (await router.ask(request("POST", "/plugins/../sleep", b"{}"))).refused(404, "unknown_path")
    (await router.ask(request("POST", "/custom/more", b"{}"))).refused(404, "unknown_path")
    assert [received.target for received in replica.requests] == [
        "/custom?x=1",
        "/plugins/a",
        "/plugins/a/b?c",
        "/plugins/a",
    ]


async def test_own_health_and_version(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica())
    assert (await router.get("/health")).status == 200
    assert (await router.get("/version")).json()["version"]
    assert (await router.get("/ready")).status == 200
    assert (await router.get("/ready?model=m1")).status == 200
    (await router.get("/ready?model=nope")).refused(404, "model_not_found")


@pytest.mark.parametrize("path", ["/health", "/ready", "/version", "/metrics", "/v1/models", "/v1/models/m1"])
async def test_head_of_an_own_path_has_no_body(start_router: StartRouter, path: str) -> None:
    router = await start_router(FakeReplica())
    client = await router.begin(request("HEAD", path))
    assert (await client.head()).status == 200
    answer = await client.ask(request("GET", path))
    assert answer.status == 200
    assert answer.body.entity
