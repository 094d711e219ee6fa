"""What crosses the hop: ordinary fields unchanged, hop-by-hop fields and other users' secrets never."""

import asyncio

import pytest

from tests.fakes.client import chat, chat_body, request
from tests.fakes.message import LAST_CHUNK
from tests.fakes.replica import (
    OK,
    SSE_HEAD,
    Connection,
    FakeReplica,
    Received,
    event,
    held,
    reply,
    sized,
)
from tests.fakes.running import StartRouter

ORDINARY = {
    "Authorization": "Bearer sk-1",
    "Cookie": "own=2; b=3",
    "X-Custom": "a, b;q=0.5",
    "x-lower": "kept",
    "Accept-Encoding": "br, zstd",
    "User-Agent": "test/1",
    "OpenAI-Organization": "org",
    "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "X-Empty": "",
    "X-Latin": "caf\xe9",
}

HOP_BY_HOP = {
    "Connection": "keep-alive, X-Secret",
    "X-Secret": "1",
    "Keep-Alive": "timeout=5",
    "TE": "trailers",
    "Proxy-Authorization": "Basic eA==",
    "Proxy-Connection": "keep-alive",
    "Upgrade": "h2c",
    "Trailer": "X-After",
}


async def test_ordinary_fields_reach_the_replica_unchanged(start_router: StartRouter) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    assert (await router.ask(chat(headers=ORDINARY))).status == 200
    head = replica.requests[0].head
    for name, value in ORDINARY.items():
        assert head.all(name) == [value]
    assert ("x-lower", "kept") in head.fields


async def test_repeated_fields_stay_apart_and_in_order(start_router: StartRouter) -> None:
    replica = FakeReplica(
        reply(sized(b"{}", headers="Set-Cookie: a=1\r\nX-R: 1\r\nSet-Cookie: b=2\r\nX-R: 2\r\n"))
    )
    router = await start_router(replica)
    raw = chat().replace(b"\r\n", b"\r\nX-A: 1\r\nX-B: x\r\nX-A: 2\r\n", 1)
    answer = await router.ask(raw)
    assert replica.requests[0].head.all("x-a") == ["1", "2"]
    assert answer.head.all("set-cookie") == ["a=1", "b=2"]
    assert answer.head.all("x-r") == ["1", "2"]


async def test_hop_by_hop_fields_do_not_cross(start_router: StartRouter) -> None:
    hop = "Connection: close, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=1\r\nProxy-Connection: close\r\n"
    replica = FakeReplica(reply(sized(b"{}", headers=hop + "X-Stays: yes\r\nUpgrade: h2c\r\n"), then="fin"))
    router = await start_router(replica)
    client = await router.connect()
    for _ in range(2):
        answer = await client.ask(chat(headers={**HOP_BY_HOP, "X-Ordinary": "1"}))
        assert answer.status == 200
        assert answer.head.get("x-stays") == "yes"
        assert {"x-hop", "keep-alive", "proxy-connection", "upgrade"}.isdisjoint(answer.head.names)
        assert answer.head.get("connection") in {None, "keep-alive"}
    for received in replica.requests:
        names = received.head.names
        assert {name.lower() for name in HOP_BY_HOP if name != "Connection"}.isdisjoint(names)
        assert received.head.get("connection") in {None, "keep-alive"}
        assert received.head.get("x-ordinary") == "1"


@pytest.mark.parametrize(
    "nominated", ["Host", "Content-Length", "Content-Type", "Authorization", "X-Request-Id"]
)
async def test_nominating_needed_fields_does_not_break_the_request(
    start_router: StartRouter, nominated: str
) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    answer = await router.ask(chat(headers={"Connection": nominated, "X-Request-Id": "a"}))
    assert answer.status in {200, 400}
    for received in replica.requests:
        assert received.head.get("host") == replica.name
        assert len(received.head.framing) == 1
        assert received.body == chat_body()


async def test_host_upstream_is_the_replicas(start_router: StartRouter) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    assert (await router.ask(chat(headers={"Host": "api.example"}))).status == 200
    assert replica.requests[0].head.all("host") == [replica.name]


async def test_cookies_do_not_travel_between_users(start_router: StartRouter) -> None:
    # Client libraries keep cookies for names, not for addresses.
    replica = FakeReplica(reply(sized(b"{}", headers="Set-Cookie: sid=alice; Path=/\r\n")), host="localhost")
    router = await start_router(replica)
    first = await router.ask(chat(user="1"))
    second = await router.ask(chat(user="2"))
    own = await router.ask(chat(user="2", headers={"Cookie": "own=2"}))
    assert [received.head.get("cookie") for received in replica.requests] == [None, None, "own=2"]
    for answer in (first, second, own):
        assert answer.head.all("set-cookie") == ["sid=alice; Path=/"]
    assert all(probe.head.get("cookie") is None for probe in replica.probed)


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer " + "a" * 9_000},
        {"Authorization": "Bearer " + "a" * 32_000},
        {"X-Large": "a" * 60_000},
        {f"X-Many-{number}": "v" for number in range(140)},
        {f"X-Many-{number}": "v" * 2_000 for number in range(140)},
    ],
    ids=["9-kB", "32-kB", "60-kB", "140-fields", "140-large-fields"],
)
async def test_large_and_many_fields_pass_intact(start_router: StartRouter, headers: dict[str, str]) -> None:
    replica = FakeReplica(reply(sized(b"{}", headers="X-Big: " + "b" * 20_000 + "\r\n")))
    router = await start_router(replica)
    answer = await router.ask(chat(headers=headers))
    assert answer.status == 200
    assert answer.head.get("x-big") == "b" * 20_000
    for name, value in headers.items():
        assert replica.requests[0].head.get(name) == value


TOO_LARGE = {
    "70-kB": {"X-Large": "a" * 70_000},
    "1-MB": {"X-Large": "a" * 1_000_000},
    "300-fields": {f"X-Many-{number}": "v" for number in range(300)},
    "large-name": {"X-" + "a" * 70_000: "v"},
}


@pytest.mark.parametrize("headers", TOO_LARGE.values(), ids=TOO_LARGE)
async def test_too_large_and_too_many_fields_are_refused(
    start_router: StartRouter, headers: dict[str, str]
) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    client = await router.begin(chat(headers=headers))
    (await client.answer()).refused(431, "headers_too_large")
    await client.gone()
    assert replica.requests == []
    assert (await router.ask(chat())).status == 200


async def test_header_limits_are_settings(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica(), max_header_bytes=1000, max_headers=20)
    assert (await router.ask(chat(headers={"X-A": "a" * 900}))).status == 200
    (await router.ask(chat(headers={"X-A": "a" * 1100}))).refused(431, "headers_too_large")
    many = {f"X-{number}": "v" for number in range(21)}
    (await router.ask(chat(headers=many))).refused(431, "headers_too_large")


EXPECTING = {"Expect": "100-continue"}


async def test_expecting_client_is_told_to_continue_by_the_router(start_router: StartRouter) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    head, _, body = chat(headers=EXPECTING).partition(b"\r\n\r\n")
    client = await router.begin(head + b"\r\n\r\n")
    assert (await client.head()).status == 100
    answer = await client.ask(body)
    assert answer.status == 200
    assert answer.informational == []
    assert replica.requests[0].head.get("expect") is None
    assert replica.requests[0].body == body


async def test_expecting_client_that_does_not_wait_is_served(start_router: StartRouter) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    client = await router.connect()
    for _ in range(2):
        assert (await client.ask(chat(headers=EXPECTING))).status == 200
    assert [received.body for received in replica.requests] == [chat_body()] * 2


@pytest.mark.parametrize("status", ["417 Expectation Failed", "401 Unauthorized", "413 Too Large"])
async def test_refusal_of_an_expecting_client_passes(start_router: StartRouter, status: str) -> None:
    replica = FakeReplica(reply(sized(b'{"error":{}}', status=status)))
    router = await start_router(replica)
    head, _, body = chat(headers=EXPECTING).partition(b"\r\n\r\n")
    client = await router.begin(head + b"\r\n\r\n")
    assert (await client.head()).status == 100
    answer = await client.ask(body)
    assert answer.head.start == f"HTTP/1.1 {status}"
    assert answer.body.raw == b'{"error":{}}'


@pytest.mark.parametrize("path", ["/no/such/path", "/v1/chat/completions"])
async def test_expecting_client_is_refused_without_its_body(start_router: StartRouter, path: str) -> None:
    router = await start_router(FakeReplica(), max_body_bytes=1000)
    raw = request("POST", path, b"x" * 2000, EXPECTING)
    client = await router.begin(raw.partition(b"\r\n\r\n")[0] + b"\r\n\r\n")
    answer = await client.answer()
    assert answer.status == (413 if path.startswith("/v1") else 404)


async def test_unknown_expectation_does_not_reach_the_replica(start_router: StartRouter) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    answer = await router.ask(chat(headers={"Expect": "a-miracle"}))
    assert answer.status in {200, 417}
    assert [received.head.get("expect") for received in replica.requests] in ([], [None])


async def test_request_id_is_kept_passed_on_and_returned(start_router: StartRouter) -> None:
    replica = FakeReplica(reply(sized(b"{}", headers="X-Request-Id: the-engines-own\r\n")))
    router = await start_router(replica)
    answer = await router.ask(chat(headers={"X-Request-Id": "mine-1"}))
    assert replica.requests[0].head.all("x-request-id") == ["mine-1"]
    assert answer.head.all("x-request-id") == ["mine-1"]


async def test_request_id_is_made_when_there_is_none(start_router: StartRouter) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    answers = [await router.ask(chat()) for _ in range(3)]
    returned = [answer.head.get("x-request-id") for answer in answers]
    assert None not in returned
    assert len(set(returned)) == 3
    assert [received.head.get("x-request-id") for received in replica.requests] == returned


async def test_same_id_in_flight_is_told_apart_upstream(start_router: StartRouter) -> None:
    gate = asyncio.Event()
    replica = FakeReplica(held(SSE_HEAD + event("1"), gate, LAST_CHUNK))
    router = await start_router(replica)
    clients = [await router.begin(chat(headers={"X-Request-Id": "dup-1"})) for _ in range(3)]
    await router.stage(streaming=3)
    gate.set()
    for client in clients:
        assert (await client.answer()).head.get("x-request-id") == "dup-1"
    assert len({received.head.get("x-request-id") for received in replica.requests}) == 3
    again = await router.ask(chat(headers={"X-Request-Id": "dup-1"}))
    assert again.head.get("x-request-id") == "dup-1"
    assert replica.requests[-1].head.get("x-request-id") == "dup-1"


async def test_retried_request_has_an_id_of_its_own(start_router: StartRouter) -> None:
    down, live = FakeReplica(), FakeReplica()
    router = await start_router(down, live, policy="round-robin", health={"interval": 1000})
    await down.refuse()
    seen = set()
    for number in range(2):
        answer = await router.ask(chat(headers={"X-Request-Id": f"r-{number}"}))
        assert answer.head.get("x-request-id") == f"r-{number}"
        seen.add(live.requests[-1].head.get("x-request-id"))
    assert seen != {"r-0", "r-1"}
    assert all(name is not None and name.startswith("r-") for name in seen)


@pytest.mark.parametrize("length", [128, 129, 50_000])
async def test_long_request_id_does_not_reach_the_replica(start_router: StartRouter, length: int) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    given = "i" * length
    answer = await router.ask(chat(headers={"X-Request-Id": given}))
    assert answer.status == 200
    upstream = replica.requests[0].head.get("x-request-id")
    assert upstream is not None
    assert len(upstream) <= 128
    assert (upstream == given) is (length <= 128)


@pytest.mark.parametrize("given", ["a b", "x\xe9", 'quo"te', "semi;colon", "a\tb", "\xff\xfe"])
async def test_odd_request_id_comes_back_as_sent(start_router: StartRouter, given: str) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    for raw in (chat(headers={"X-Request-Id": given}), chat(model="nope", headers={"X-Request-Id": given})):
        answer = await router.ask(raw)
        assert answer.status in {200, 404}
        assert answer.head.all("x-request-id") == [given]
    assert len(replica.requests) == 1


TARGETS = [
    "/v1/chat/completions?x=%2B%20+&q=a%3Db&e=%2525&flag&u=%E4%BD%A0",
    "/v1/chat/completions?",
    "/v1/chat/completions?a=/../b&c=//d",
    "/v1/chat/completions?a='()*!$,;:@[]{}|^`\"",
    "/v1/chat/completions?a=%zz&b=%",
    "/v1/responses/org%3Aname%3av1/cancel?x=1",
    "/v1/responses/a+b~c!d'(e)*f/cancel",
    "/v1/responses/%E4%BD%A0/cancel",
]


@pytest.mark.parametrize("target", TARGETS)
async def test_path_and_query_stay_as_sent(start_router: StartRouter, target: str) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    answer = await router.ask(request("POST", target, chat_body()))
    assert answer.status == 200
    assert replica.requests[0].target == target


async def test_absolute_target_goes_to_its_path(start_router: StartRouter) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    raw = request("POST", "http://elsewhere.example/v1/chat/completions?a=%2F", chat_body())
    answer = await router.ask(raw)
    assert answer.status in {200, 400, 404}
    for received in replica.requests:
        assert received.target == "/v1/chat/completions?a=%2F"
        assert received.head.get("host") == replica.name


@pytest.mark.parametrize("base", ["/engine", "/engine/", "/a/b"])
async def test_base_path_of_a_replica_is_joined(start_router: StartRouter, base: str) -> None:
    replica = FakeReplica(base_path=base.rstrip("/"))
    replica.settings["url"] = f"http://127.0.0.1:{replica.port}{base}"
    router = await start_router(replica)
    assert (await router.ask(request("POST", "/v1/completions?a=%2F", b"{}"))).status == 200
    assert replica.requests[0].target == base.rstrip("/") + "/v1/completions?a=%2F"


async def test_replicas_own_key_replaces_the_callers(start_router: StartRouter) -> None:
    keyed = FakeReplica(api_key="sk-upstream", models=["keyed"])
    plain = FakeReplica(models=["plain"])
    router = await start_router(keyed, plain)
    mine = {"Authorization": "Bearer sk-mine", "X-Api-Key": "sk-mine"}
    await router.ask(chat(model="keyed", headers=mine))
    await router.ask(chat(model="keyed"))
    await router.ask(chat(model="plain", headers=mine))
    for received in keyed.requests:
        assert received.head.all("authorization") == ["Bearer sk-upstream"]
        assert b"sk-mine" not in received.head.raw
    assert plain.requests[0].head.all("authorization") == ["Bearer sk-mine"]
    assert plain.requests[0].head.all("x-api-key") == ["sk-mine"]


async def test_response_fields_reach_the_client_unchanged(start_router: StartRouter) -> None:
    fields = 'X-One: a, b\r\nx-two:no-space\r\nETag: "x"\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n'
    fields += "Server: uvicorn\r\nContent-Encoding: gzip\r\nx-ratelimit-remaining-requests: 0\r\n"
    router = await start_router(FakeReplica(reply(sized(b"\x1f\x8b", headers=fields))))
    answer = await router.ask(chat())
    for name, value in {
        "x-one": "a, b",
        "x-two": "no-space",
        "etag": '"x"',
        "date": "Thu, 01 Jan 1970 00:00:00 GMT",
        "server": "uvicorn",
        "content-encoding": "gzip",
        "x-ratelimit-remaining-requests": "0",
    }.items():
        assert answer.head.all(name) == [value]
    assert answer.body.raw == b"\x1f\x8b"


async def test_no_compression_is_asked_for_on_its_own(start_router: StartRouter) -> None:
    async def script(received: Received, connection: Connection) -> None:
        seen.append(received.head.all("accept-encoding"))
        await connection.send(OK)

    seen: list[list[str]] = []
    router = await start_router(FakeReplica(script))
    for wanted in ("gzip", "identity", "br, zstd"):
        await router.ask(chat(headers={"Accept-Encoding": wanted}))
    await router.ask(chat())
    assert seen == [["gzip"], ["identity"], ["br, zstd"], []]
