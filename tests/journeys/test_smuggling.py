"""Router and replica always agree on where a request ends, and on which path it asks for."""

import pytest

from tests.fakes.client import chat, chat_body, request
from tests.fakes.message import LAST_CHUNK, chunk
from tests.fakes.replica import FakeReplica, reply, sized
from tests.fakes.running import StartRouter
from tests.fakes.wire import PeerGone, eventually

BODY = chat_body()
START = b"POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nContent-Type: application/json\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
CHUNKED = b"Transfer-Encoding: chunked\r\n"
SMUGGLED = b"GET /admin/smuggled HTTP/1.1\r\nHost: x\r\n\r\n"

REFUSED = {
    "length-and-chunked": START + b"Content-Length: 4\r\n" + CHUNKED + b"\r\n" + LAST_CHUNK + SMUGGLED,
    "chunked-and-length": START + CHUNKED + b"Content-Length: 4\r\n\r\n" + LAST_CHUNK + SMUGGLED,
    "two-lengths": START + LENGTH + b"Content-Length: 0\r\n\r\n" + BODY,
    "length-list": START + b"Content-Length: 2, 3\r\n\r\n" + BODY,
    "space-before-colon": START + b"Transfer-Encoding : chunked\r\n\r\n" + chunk(BODY) + LAST_CHUNK,
    "space-before-colon-of-length": START + LENGTH.replace(b":", b" :") + b"\r\n" + BODY,
    "xchunked": START + b"Transfer-Encoding: xchunked\r\n\r\n" + chunk(BODY) + LAST_CHUNK,
    "gzip-chunked": START + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + chunk(BODY) + LAST_CHUNK,
    "chunked-gzip": START + b"Transfer-Encoding: chunked, gzip\r\n\r\n" + chunk(BODY) + LAST_CHUNK,
    "identity": START + b"Transfer-Encoding: identity\r\n" + LENGTH + b"\r\n" + BODY,
    "chunked-in-quotes": START + b'Transfer-Encoding: "chunked"\r\n\r\n' + chunk(BODY) + LAST_CHUNK,
    "chunked-twice": START + CHUNKED + CHUNKED + b"\r\n" + chunk(BODY) + LAST_CHUNK,
    "chunk-overrun": START + CHUNKED + b"\r\n4\r\n12345\r\n" + LAST_CHUNK,
    "chunk-size-in-words": START + CHUNKED + b"\r\nfour\r\n1234\r\n" + LAST_CHUNK,
    "chunk-size-signed": START + CHUNKED + b"\r\n+4\r\n1234\r\n" + LAST_CHUNK,
    "chunk-size-prefixed": START + CHUNKED + b"\r\n0x4\r\n1234\r\n" + LAST_CHUNK,
    "chunk-size-huge": START + CHUNKED + b"\r\n" + b"f" * 30 + b"\r\n",
    "nul-in-a-field": START + b"X-A: a\x00b\r\n" + LENGTH + b"\r\n" + BODY,
    "signed-length": START + b"Content-Length: +2\r\n\r\n{}",
    "negative-length": START + b"Content-Length: -2\r\n\r\n{}",
    "hex-length": START + b"Content-Length: 0x2\r\n\r\n{}",
    "underscored-length": START + b"Content-Length: 1_0\r\n\r\n" + b"0123456789",
    "foreign-digits": START + "Content-Length: ٢\r\n\r\n{}".encode(),
    "no-colon": START + b"Content-Length 2\r\n\r\n{}",
    "no-name": START + b": 2\r\n\r\n",
    "space-in-name": START + b"X A: 2\r\n\r\n",
    "http-3": START.replace(b"HTTP/1.1", b"HTTP/3.0") + LENGTH + b"\r\n" + BODY,
    "no-version": b"POST /v1/chat/completions\r\nHost: r\r\n\r\n",
    "garbage": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
}

EITHER = {
    "equal-lengths": START + LENGTH + LENGTH + b"\r\n" + BODY,
    "equal-length-list": START + b"Content-Length: %d, %d\r\n\r\n" % (len(BODY), len(BODY)) + BODY,
    "chunked-and-tab": START + b"Transfer-Encoding: chunked\t\r\n\r\n" + chunk(BODY) + LAST_CHUNK,
    "bare-line-feeds": (START + LENGTH + b"\r\n").replace(b"\r\n", b"\n") + BODY,
    "one-bare-line-feed": START + b"X-A: a\nX-B: b\r\n" + LENGTH + b"\r\n" + BODY,
    "bare-line-feed-in-a-chunk": START + CHUNKED + b"\r\n" + chunk(BODY).replace(b"\r\n", b"\n") + LAST_CHUNK,
    "bare-carriage-return": START + b"X-A: a\rX-B: b\r\n" + LENGTH + b"\r\n" + BODY,
    "folded-field": START + b"X-A: a\r\n folded\r\n" + LENGTH + b"\r\n" + BODY,
    "folded-length": START + b"Content-Length:\r\n %d\r\n\r\n" % len(BODY) + BODY,
    "folded-first": START.partition(b"\r\n")[0] + b"\r\n X-A: a\r\n" + LENGTH + b"\r\n" + BODY,
    "leading-blank-line": b"\r\n" + START + LENGTH + b"\r\n" + BODY,
    "chunk-extension": START + CHUNKED + b"\r\n" + chunk(BODY).replace(b"\r\n", b";a=b\r\n", 1) + LAST_CHUNK,
    "trailer-with-length": START
    + CHUNKED
    + b"\r\n"
    + chunk(BODY)
    + b"0\r\nContent-Length: 9999\r\nTransfer-Encoding: x\r\n\r\n",
    "old-and-chunked": START.replace(b"HTTP/1.1", b"HTTP/1.0") + CHUNKED + b"\r\n" + chunk(BODY) + LAST_CHUNK,
    "no-host": START.replace(b"Host: r\r\n", b"") + LENGTH + b"\r\n" + BODY,
    "two-hosts": START + b"Host: other\r\n" + LENGTH + b"\r\n" + BODY,
    "lower-case-method": START.replace(b"POST", b"post") + LENGTH + b"\r\n" + BODY,
    "two-spaces": START.replace(b"POST ", b"POST  ") + LENGTH + b"\r\n" + BODY,
    "tab-in-the-request-line": START.replace(b"POST ", b"POST\t") + LENGTH + b"\r\n" + BODY,
    "body-of-a-get": b"GET /v1/models HTTP/1.1\r\nHost: r\r\n" + LENGTH + b"\r\n" + BODY,
}


def assert_sound(replica: FakeReplica) -> None:
    """One request at most, framed once, with the body that its framing says."""
    assert len(replica.requests) <= 1
    for received in replica.requests:
        assert received.complete
        assert received.target == "/v1/chat/completions"
        assert len(received.head.framing) == 1, received.head.raw
        assert received.body == BODY
        assert b"smuggled" not in received.head.raw + received.raw_body


@pytest.mark.parametrize("in_pieces", [False, True], ids=["at-once", "in-pieces"])
@pytest.mark.parametrize("raw", REFUSED.values(), ids=REFUSED)
async def test_ambiguous_request_is_refused_and_its_connection_closed(
    start_router: StartRouter, raw: bytes, in_pieces: bool
) -> None:
    replica = FakeReplica(reply(sized(b"{}")))
    router = await start_router(replica)
    client = await router.connect()
    try:
        for start in range(0, len(raw), 16 if in_pieces else len(raw)):
            await client.send(raw[start : start + 16] if in_pieces else raw)
    except PeerGone:
        pass
    answer = await client.answer()
    answer.refused(400, "invalid_request")
    await client.gone()
    assert client.wire.unread == b""
    assert replica.requests == []
    assert (await router.ask(chat())).status == 200


@pytest.mark.parametrize("raw", EITHER.values(), ids=EITHER)
async def test_odd_request_is_refused_or_made_sound(start_router: StartRouter, raw: bytes) -> None:
    replica = FakeReplica(reply(sized(b"{}")))
    router = await start_router(replica)
    client = await router.begin(raw)
    answer = await client.answer()
    if answer.status != 200:
        assert answer.status in {400, 405}
        answer.refused(answer.status, answer.json()["error"]["code"])
    assert_sound(replica)
    client.wire.half_close()
    await client.gone()
    assert client.wire.unread == b""
    assert_sound(replica)


async def test_chunked_upload_reaches_the_replica_with_one_framing(start_router: StartRouter) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    pieces = [BODY[start : start + 7] for start in range(0, len(BODY), 7)]
    raw = START + CHUNKED + b"\r\n" + b"".join(map(chunk, pieces)) + b"0\r\nX-Trailer: 1\r\n\r\n"
    assert (await router.ask(raw)).status == 200
    assert_sound(replica)
    assert replica.requests[0].head.get("trailer") is None


DOTTED = [
    "/v1/../admin/x",
    "/v1/%2e%2e/admin/x",
    "/v1/%2E%2E/admin/x",
    "/v1/.%2e/admin/x",
    "/v1/..%2fadmin/x",
    "/v1/..%5cadmin%5cx",
    "/v1/..\\admin\\x",
    "/v1/./../metrics",
    "/v1/chat/../../sleep",
    "/v1/responses/../../sleep",
    "/v1/responses/..%2f..%2fsleep",
    "/v1/responses/%2e%2e/cancel",
    "/v1/responses/..",
    "/v1/responses/./cancel",
    "/v1/responses/a%00b/cancel",
    "/v1/responses/a%2fcancel",
    "/v1/responses//cancel",
    "/v1/audio/../../sleep",
    "/v1/audio/..",
    "/v1/audio/%2e%2e",
    "/v1/chat/completions/../../../sleep",
    "/v1/chat/completions/..;/sleep",
    "/v1/chat/completions;/../sleep",
    "/v1/models/../../admin/ledger",
    "/v1/models/%2e%2e/%2e%2e/admin/ledger",
    "//admin/x",
    "/admin/ledger",
    "/./admin/x",
    "/%61dmin/x",
    "/v1//../sleep",
    "http://r/v1/../sleep",
    "*",
    "sleep",
    "/v1/chat/completions#/../sleep",
]


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("target", DOTTED)
async def test_no_path_turns_into_another(start_router: StartRouter, target: str, method: str) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    answer = await router.ask(request(method, target, BODY if method == "POST" else None))
    for received in replica.requests:
        assert received.target == target
        assert not any(dots in target.lower() for dots in ("..", "%2e", "%2f", "%5c", "/./", "//", "%00"))
    if not replica.requests:
        answer.refused(answer.status, answer.json()["error"]["code"])
        assert answer.status in {400, 404, 405}


async def test_connect_method_is_refused(start_router: StartRouter) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    client = await router.begin(b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: 127.0.0.1:22\r\n\r\n")
    assert (await client.answer()).status in {400, 404, 405}
    assert replica.requests == []


@pytest.mark.parametrize(
    "status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"]
)
async def test_redirect_is_passed_and_never_followed(start_router: StartRouter, status: str) -> None:
    elsewhere = FakeReplica(models=["other"])
    replica = FakeReplica(models=["m1"])
    router = await start_router(replica, elsewhere)
    for location in (
        f"http://127.0.0.1:{elsewhere.port}/steal",
        "/elsewhere",
        f"http://127.0.0.1:{replica.port}/v1/chat/completions",
    ):
        replica.requests.clear()
        replica.script = reply(sized(b"moved", status=status, headers=f"Location: {location}\r\n"))
        answer = await router.ask(chat(headers={"Authorization": "Bearer sk-1"}))
        assert answer.head.start == f"HTTP/1.1 {status}"
        assert answer.head.get("location") == location
        assert answer.body.raw == b"moved"
        assert len(replica.requests) == 1
    assert elsewhere.requests == []


async def test_redirected_probes_are_not_followed(start_router: StartRouter) -> None:
    async with FakeReplica(models=["other"]) as elsewhere:
        replica, other = FakeReplica(), FakeReplica()
        location = f"Location: http://127.0.0.1:{elsewhere.port}/health\r\n"
        redirect = sized(b"", status="302 Found", headers=location)
        replica.probes.health = replica.probes.models = replica.probes.gauges = redirect
        router = await start_router(replica, other, ready=1)
        assert (await router.ledger()).replica(replica)["state"] != "ready"
        other.probes.gauges = other.probes.models = redirect
        probes = len(other.probed)
        await eventually(lambda: len(other.probed) >= probes + 4, "more probes")
        assert elsewhere.probed == []
        assert elsewhere.connections == []
