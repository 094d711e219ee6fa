"""Request bodies: they arrive as sent or are refused with a 4xx, and never harm the connection."""

import asyncio
import json
from collections.abc import Iterator

import pytest

from replicarouter.policies import POLICIES
from tests.fakes.client import Answer, Client, chat, chat_body, request
from tests.fakes.message import LAST_CHUNK, chunk
from tests.fakes.replica import OK, FakeReplica, reply
from tests.fakes.running import StartRouter
from tests.fakes.wire import eventually

PATH = "/v1/chat/completions"
UPLOAD = {"Content-Type": "application/json", "Transfer-Encoding": "chunked"}

BAD_BODIES = {
    "empty": b"",
    "not-json": b"{bad",
    "cut": b'{"model":"m1","messages":[',
    "two-documents": b'{"model":"m1"}{"model":"m1"}',
    "list": b"[1]",
    "string": b'"x"',
    "null": b"null",
    "number": b"17",
    "no-fields": b"{}",
    "model-null": b'{"model":null}',
    "model-number": b'{"model":123}',
    "model-list": b'{"model":["m1"]}',
    "model-object": b'{"model":{"m1":1}}',
    "model-empty": b'{"model":""}',
    "model-twice": b'{"model":"m1","model":"m1"}',
    "messages-null": b'{"model":"m1","messages":null}',
    "messages-string": b'{"model":"m1","messages":"hi"}',
    "messages-mixed": b'{"model":"m1","messages":[null,1,{"role":"user"}]}',
    "invalid-utf-8": b'{"model":"m1","x":"\xff"}',
    "lone-surrogate": b'{"model":"m1","x":"\\ud800"}',
    "lone-surrogate-in-model": b'{"model":"\\ud800"}',
    "nul-in-model": b'{"model":"m1\\u0000"}',
    "nan": b'{"model":"m1","x":NaN}',
    "huge-number": b'{"model":"m1","x":' + b"9" * 5000 + b"}",
    "deeply-nested": b'{"model":"m1","x":' + b"[" * 20_000 + b"]" * 20_000 + b"}",
    "byte-order-mark": b'\xef\xbb\xbf{"model":"m1"}',
    "utf-16": '{"model":"m1"}'.encode("utf-16"),
    "stream-of-other-kind": b'{"model":"m1","stream":"yes"}',
    "form": b"model=m1&prompt=x",
}


def assert_refused_or_untouched(answer: Answer, replica: FakeReplica, body: bytes) -> None:
    if answer.status == 200:
        assert replica.requests[-1].body == body
    else:
        assert answer.status in {400, 404, 415, 422}
        answer.refused(answer.status, answer.json()["error"]["code"])


@pytest.mark.parametrize("pools", [1, 2])
@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES)
async def test_bad_body_is_refused_or_left_to_the_replica(
    start_router: StartRouter, body: bytes, pools: int
) -> None:
    replica = FakeReplica()
    others = [FakeReplica(models=["m2"]) for _ in range(pools - 1)]
    router = await start_router(replica, *others)
    client = await router.connect()
    assert_refused_or_untouched(await client.ask(request("POST", PATH, body)), replica, body)
    assert (await client.ask(chat())).status == 200
    assert (await router.ledger()).replica(replica)["state"] == "ready"
    assert set((await router.settled()).finished) <= {"ok", "invalid_request", "model_not_found"}


@pytest.mark.parametrize("policy", POLICIES)
async def test_bad_bodies_break_no_policy(start_router: StartRouter, policy: str) -> None:
    replica = FakeReplica()
    router = await start_router(replica, policy=policy)
    client = await router.connect()
    for body in BAD_BODIES.values():
        assert_refused_or_untouched(await client.ask(request("POST", PATH, body)), replica, body)
    assert (await client.ask(chat())).status == 200


async def test_request_without_any_body_is_refused(start_router: StartRouter) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    client = await router.connect()
    (await client.ask(request("POST", PATH))).refused(400, "invalid_request")
    assert (await client.ask(chat())).status == 200


async def test_body_that_is_no_json_is_named_so(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica(), FakeReplica(models=["m2"]))
    (await router.ask(request("POST", PATH, b"{bad"))).refused(400, "invalid_request")


async def test_model_must_be_named_when_several_are_served(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica(), FakeReplica(models=["m2"]))
    (await router.ask(request("POST", PATH, b"{}"))).refused(400, "invalid_request")


async def test_the_only_model_need_not_be_named(start_router: StartRouter) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    assert (await router.ask(request("POST", PATH, b'{"messages":[]}'))).status == 200
    assert replica.requests[0].body == b'{"messages":[]}'


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/json; charset=utf-8", "application/x-www-form-urlencoded", ""]
)
async def test_content_type_is_passed_on_and_not_judged(start_router: StartRouter, kind: str) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    answer = await router.ask(request("POST", PATH, chat_body(), {"Content-Type": kind}))
    assert answer.status == 200
    assert replica.requests[0].head.get("content-type") == kind


ODD = (
    '{ "seed" :9007199254740993,\t"big":123456789012345678901234567890,\n"temperature":0.10,"e":1E5,'
    '"s":"a\\/b","u":"\\u4f60 你", "model" : "m1" ,"chat_template_kwargs":{"enable_thinking":false},'
    '"top_k":-1,"return_token_ids":true,"prompt_token_ids":[1,2],"messages":[{"role":"assistant",'
    '"reasoning_content":"…","content":null},{"role":"tool","tool_call_id":"x","content":""}],'
    '"cache_salt":"x","priority":0,"n":2,"stream":false,"stream":true,"x":1.0e-0 }  \r\n'
).encode()


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
async def test_body_arrives_as_sent(start_router: StartRouter, chunked: bool) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    assert (await router.ask(request("POST", PATH, ODD, chunked=chunked))).status == 200
    assert replica.requests[0].body == ODD


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize("size", [1_048_575, 1_048_577, 1_300_000, 20_000_000])
async def test_large_body_arrives_as_sent(start_router: StartRouter, size: int, chunked: bool) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    frame = chat_body(pad="")
    body = chat_body(pad="x" * (size - len(frame)))
    assert len(body) == size
    answer = await router.ask(request("POST", PATH, body, chunked=chunked))
    assert answer.status == 200
    assert replica.requests[0].body == body


async def test_slow_upload_is_served(start_router: StartRouter) -> None:
    replica = FakeReplica()
    router = await start_router(replica, timeouts={"client_body": 0.5, "client_head": 0.3})
    raw = chat(pad="x" * 300)
    client = await router.begin(raw[:-60])
    for start in range(len(raw) - 60, len(raw), 4):
        # In all longer than either limit, with gaps that are shorter.
        await asyncio.sleep(0.05)
        await client.send(raw[start : start + 4])
    assert (await client.answer()).status == 200
    assert replica.requests[0].body == raw.partition(b"\r\n\r\n")[2]


async def test_upload_in_single_bytes_is_served(start_router: StartRouter) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    raw = chat()
    client = await router.connect()
    for byte in raw:
        await client.send(bytes([byte]))
        await asyncio.sleep(0)
    assert (await client.answer()).status == 200
    assert replica.requests[0].body == chat_body()


async def test_declared_length_over_the_limit_is_refused_unread(start_router: StartRouter) -> None:
    replica = FakeReplica()
    router = await start_router(replica, max_body_bytes=100_000)
    head = request("POST", PATH, b"", {"Content-Length": "100001"})
    client = await router.begin(head)
    (await client.answer()).refused(413, "body_too_large")
    assert replica.requests == []


@pytest.mark.parametrize("size", [100_001, 5_000_000])
@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
async def test_body_over_the_limit_is_refused(start_router: StartRouter, size: int, chunked: bool) -> None:
    replica = FakeReplica()
    router = await start_router(replica, max_body_bytes=100_000)
    raw = request("POST", PATH, b"x" * size, chunked=chunked)
    client = await router.connect()
    client.wire.transport.write(raw)
    (await client.answer()).refused(413, "body_too_large")
    assert replica.requests == []
    assert (await router.ask(chat())).status == 200


async def test_endless_upload_is_refused_while_it_arrives(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica(), max_body_bytes=100_000)
    client = await router.begin(request("POST", PATH, headers=UPLOAD))
    while not client.wire.over and b"\r\n\r\n" not in client.wire.unread:
        await client.send(chunk(b"x" * 10_000))
        await asyncio.sleep(0)
    (await client.answer()).refused(413, "body_too_large")


async def test_body_of_exactly_the_limit_passes(start_router: StartRouter) -> None:
    replica = FakeReplica()
    body = chat_body()
    router = await start_router(replica, max_body_bytes=len(body))
    for chunked in (False, True):
        assert (await router.ask(request("POST", PATH, body, chunked=chunked))).status == 200
    assert [received.body for received in replica.requests] == [body, body]


def form(boundary: str, *parts: tuple[str, bytes]) -> bytes:
    """A multipart body; each part is the rest of its Content-Disposition and its content."""

    def lines() -> Iterator[bytes]:
        for disposition, content in parts:
            yield f"--{boundary}\r\nContent-Disposition: form-data; {disposition}\r\n\r\n".encode()
            yield content + b"\r\n"
        yield f"--{boundary}--\r\n".encode()

    return b"".join(lines())


@pytest.mark.parametrize("path", ["/v1/audio/transcriptions", "/v1/audio/translations"])
@pytest.mark.parametrize("pools", [1, 2])
async def test_audio_upload_arrives_as_sent_and_is_routed_by_its_model(
    start_router: StartRouter, path: str, pools: int
) -> None:
    replica = FakeReplica(models=["whisper"])
    others = [FakeReplica(models=["m2"]) for _ in range(pools - 1)]
    router = await start_router(replica, *others)
    body = form(
        "b'(x)+_,-./:=?",
        ('name="file"; filename="naïve \\"q\\".mp3"', bytes(range(256)) * 2000),
        ('name="timestamp_granularities[]"', b"word"),
        ('name="timestamp_granularities[]"', b"segment"),
        ('name="stream"', b"true"),
        ('name="x"', b"unknown"),
        ('name="model"', b"whisper"),
    )
    kind = 'multipart/form-data; boundary="b\'(x)+_,-./:=?"'
    answer = await router.ask(request("POST", path, body, {"Content-Type": kind}))
    assert answer.status == 200
    assert replica.requests[0].body == body
    assert replica.requests[0].head.get("content-type") == kind
    assert all(other.requests == [] for other in others)


async def test_compressed_body_is_never_passed_off_as_plain(start_router: StartRouter) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    packed = b"\x1f\x8b\x08\x00 not really gzip \xff\x00"
    answer = await router.ask(request("POST", PATH, packed, {"Content-Encoding": "gzip"}))
    if answer.status == 200:
        assert replica.requests[0].body == packed
        assert replica.requests[0].head.get("content-encoding") == "gzip"
    else:
        answer.refused(415, "unsupported_encoding")
    assert (await router.ask(chat())).status == 200


@pytest.mark.parametrize("coding", ["gzip", "GZIP", "deflate", "br", "x-unknown", "gzip, gzip"])
async def test_compressed_body_is_refused_where_its_model_is_needed(
    start_router: StartRouter, coding: str
) -> None:
    replicas = [FakeReplica(), FakeReplica(models=["m2"])]
    router = await start_router(*replicas)
    answer = await router.ask(request("POST", PATH, b"\x1f\x8b", {"Content-Encoding": coding}))
    answer.refused(415, "unsupported_encoding")
    assert all(replica.requests == [] for replica in replicas)


async def test_identity_coding_changes_nothing(start_router: StartRouter) -> None:
    replicas = [FakeReplica(), FakeReplica(models=["m2"])]
    router = await start_router(*replicas)
    for coding in ("identity", "Identity"):
        answer = await router.ask(chat(headers={"Content-Encoding": coding}))
        assert answer.status == 200


async def test_replica_that_reads_slowly_holds_the_upload_back(start_router: StartRouter) -> None:
    """The body reaches a replica that reads late, whole and in order."""
    replica = FakeReplica(read_bodies=False)
    router = await start_router(replica)
    body = chat_body(pad="x" * 3_000_000)
    proceed = asyncio.Event()

    async def read_late(received: object, connection: object) -> None:
        wire = replica.used_connections[0].wire
        wire.pause()
        await proceed.wait()
        wire.resume()
        assert await wire.read_exactly(len(body)) == body
        await wire.send(OK)

    replica.script = read_late
    client = await router.begin(request("POST", PATH, body))
    await router.stage(sent=1)
    proceed.set()
    assert (await client.answer()).status == 200


async def test_answer_before_the_body_was_read_is_passed_on(start_router: StartRouter) -> None:
    replica = FakeReplica(
        reply(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
    )
    replica.read_bodies = False
    router = await start_router(replica)
    answer = await router.ask(request("POST", PATH, chat_body(pad="x" * 3_000_000)))
    assert answer.status == 413
    assert answer.body.raw == b"{}"
    assert len(replica.requests) == 1


async def test_connection_with_an_unread_body_is_not_reused(start_router: StartRouter) -> None:
    """An early answer leaves the rest of a body on the connection, where it must not be read as a request."""
    smuggled = request("POST", PATH, b'{"smuggled":1}')
    replica = FakeReplica(reply(OK), read_bodies=False)
    router = await start_router(replica)
    assert (await router.ask(request("POST", PATH, chat_body(pad=smuggled.decode())))).status == 200
    replica.read_bodies = True
    assert (await router.ask(chat())).status == 200
    await eventually(lambda: len(replica.requests) >= 2, "the second request")
    assert b"smuggled" not in replica.requests[-1].body


async def test_early_refusal_arrives_although_the_client_still_sends(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica())
    raw = request("POST", "/no/such/path", b"x" * 3_000_000)
    client: Client = await router.connect()
    client.wire.transport.write(raw)
    (await client.answer()).refused(404, "unknown_path")


async def test_upload_in_many_chunks_is_one_body(start_router: StartRouter) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    body = chat_body(pad="é" * 3000)
    raw = request("POST", PATH, headers=UPLOAD)
    pieces = [body[start : start + 5] for start in range(0, len(body), 5)]
    assert (await router.ask(raw + b"".join(map(chunk, pieces)) + LAST_CHUNK)).status == 200
    assert json.loads(replica.requests[0].body) == json.loads(body)
    assert replica.requests[0].body == body
