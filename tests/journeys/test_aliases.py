"""An alias is another name of a model: the request goes to the model, and nothing else of it changes."""

import json

import pytest

from tests.fakes.client import chat, request
from tests.fakes.replica import FakeReplica
from tests.fakes.running import RunningRouter, StartRouter

ALIASES = {"gpt-4o": "org/real-model", "second": "other", "lost": "nobody"}
CARD = {"id": "org/real-model", "owned_by": "vllm", "max_model_len": 4096, "root": "/weights/real"}


async def aliased(start_router: StartRouter, *replicas: FakeReplica) -> RunningRouter:
    return await start_router(*replicas, aliases=ALIASES)


def real(**options: object) -> FakeReplica:
    replica = FakeReplica(**options)  # type: ignore[arg-type]
    replica.probes.models = [CARD]
    return replica


def other() -> FakeReplica:
    replica = FakeReplica()
    replica.probes.models = ["other"]
    return replica


BODY = (
    b'\r\n{ "messages":[{"content":"\xc3\xa9\\u00e9 \\"model\\":\\"gpt-4o\\"","model":"gpt-4o"}],'
    b'"seed":1.0,  "model" :\t"gpt-4o" ,"n":1e0,"x":{"model":"gpt-4o"} }\n'
)


@pytest.mark.parametrize("both", [False, True], ids=["one pool", "two pools"])
@pytest.mark.parametrize("chunked", [False, True])
async def test_only_the_value_changes_on_its_way(
    start_router: StartRouter, both: bool, chunked: bool
) -> None:
    replica = real()
    router = await aliased(start_router, replica, *([other()] if both else []))
    answer = await router.ask(request("POST", "/v1/chat/completions", BODY, chunked=chunked))
    assert answer.status == 200
    (received,) = replica.requests
    changed = BODY.replace(b'"model" :\t"gpt-4o"', b'"model" :\t"org/real-model"')
    assert received.body == changed
    assert received.head.get("content-length") == str(len(changed))


async def test_a_large_body_is_changed_in_the_same_way(start_router: StartRouter) -> None:
    replica = real()
    router = await aliased(start_router, replica, other())
    text = "x" * 3_000_000
    body = json.dumps({"messages": [{"content": text}], "model": "gpt-4o", "last": [1, 2]}).encode()
    assert (await router.ask(request("POST", "/v1/chat/completions", body))).status == 200
    assert replica.requests[0].body == body.replace(b'"gpt-4o"', b'"org/real-model"')


async def test_names_that_are_no_alias_pass_unchanged(start_router: StartRouter) -> None:
    replica = real()
    router = await aliased(start_router, replica, other())
    body = b'{"model": "org\\/real-model"}'
    assert (await router.ask(request("POST", "/v1/completions", body))).status == 200
    assert replica.requests[0].body == body
    (await router.ask(chat(model="gpt-4"))).refused(404, "model_not_found")
    (await router.ask(chat(model="lost"))).refused(404, "model_not_found")


FORM = (
    b'--b0\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    b'%b\r\n--b0\r\nContent-Disposition: form-data; name="model"\r\n\r\n%b\r\n--b0--\r\n'
)
FORM_HEADERS = {"Content-Type": "multipart/form-data; boundary=b0"}


@pytest.mark.parametrize("size", [10, 300_000, 10_000_000], ids=["small", "upload", "on disk"])
@pytest.mark.parametrize("model_first", [False, True])
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_form_is_changed_wherever_its_field_stands(
    start_router: StartRouter, size: int, model_first: bool, chunked: bool
) -> None:
    replica = real()
    router = await aliased(start_router, replica, other())
    file = (b'name="model"\r\n\r\ngpt-4o' * (size // 20 + 1))[:size]
    form = FORM % (file, b"gpt-4o")
    if model_first:
        head, _, tail = form.partition(b"--b0\r\n")
        parts = (head + b"--b0\r\n" + tail).split(b"--b0")
        form = b"--b0".join([parts[0], parts[2], parts[1], parts[3]])
    raw = request("POST", "/v1/audio/transcriptions", form, FORM_HEADERS, chunked=chunked)
    assert (await router.ask(raw, deadline=20)).status == 200
    (received,) = replica.requests
    field = b'name="model"\r\n\r\ngpt-4o\r\n--b0'
    assert form.count(field) == 1
    assert received.body == form.replace(field, field.replace(b"gpt-4o", b"org/real-model"))


async def test_a_session_names_its_model_in_the_query(start_router: StartRouter) -> None:
    replica = real()
    router = await aliased(start_router, replica, other())
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    assert (await router.get("/v1/realtime?a=%2F&model=gpt-4o&b", upgrade)).status == 200
    assert replica.requests[0].target == "/v1/realtime?a=%2F&model=org%2Freal-model&b"


async def test_a_compressed_body_must_be_sent_plain(start_router: StartRouter) -> None:
    router = await aliased(start_router, real())
    raw = request("POST", "/v1/completions", b"\x1f\x8b", {"Content-Encoding": "gzip"})
    (await router.ask(raw)).refused(415, "unsupported_encoding")


async def test_a_body_whose_name_cannot_be_replaced_is_refused(start_router: StartRouter) -> None:
    replica = real()
    router = await aliased(start_router, replica)
    raw = request("POST", "/v1/completions", '{"model":"gpt-4o"}'.encode("utf-16"))
    error = (await router.ask(raw)).refused(400, "invalid_request")
    assert error["param"] == "model"
    assert replica.requests == []


async def test_models_list_the_aliases_of_what_is_served(start_router: StartRouter) -> None:
    router = await aliased(start_router, real(), other())
    cards = {card["id"]: card for card in (await router.get("/v1/models")).json()["data"]}
    assert set(cards) == {"org/real-model", "other", "gpt-4o", "second"}
    assert cards["org/real-model"]["root"] == CARD["root"]
    expected = {
        **cards["org/real-model"],
        "id": "gpt-4o",
        "root": "org/real-model",
        "parent": "org/real-model",
    }
    assert cards["gpt-4o"] == expected
    assert (await router.get("/v1/models/gpt-4o")).json() == expected
    (await router.get("/v1/models/lost")).refused(404, "model_not_found")
    assert (await router.get("/ready?model=gpt-4o")).status == 200
    (await router.get("/ready?model=lost")).refused(404, "model_not_found")


async def test_metrics_know_the_model_and_not_its_alias(start_router: StartRouter) -> None:
    router = await aliased(start_router, real(), other())
    await router.ask(chat(model="gpt-4o"))
    await router.settled()
    page = (await router.get("/metrics")).body.entity
    assert b"gpt-4o" not in page
    metrics = await router.metrics()
    assert metrics.value("requests_total", model="org/real-model", outcome="ok") == 1


async def test_an_alias_comes_before_a_model_of_the_same_name(start_router: StartRouter) -> None:
    replica, hidden = real(), FakeReplica()
    hidden.probes.models = ["gpt-4o"]
    router = await aliased(start_router, replica, hidden)
    assert (await router.ask(chat(model="gpt-4o"))).status == 200
    assert len(replica.requests) == 1
    assert hidden.requests == []
