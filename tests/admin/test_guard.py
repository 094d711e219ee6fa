"""Who may come in through the operator's door, to look and to change something."""

import hmac

import pytest

from replicarouter.settings import AdminSettings
from tests.admin.conftest import Open
from tests.fakes.client import Client, request
from tests.fakes.wire import eventually


@pytest.mark.parametrize(
    "path",
    [
        *("/admin/ledger", "/admin/replicas", "/admin/requests", "/admin/live", "/admin/errors"),
        *("/metrics", "/version"),
    ],
)
async def test_with_a_token_nobody_enters_without_it(open_door: Open, path: str) -> None:
    door = await open_door(token="secret")
    refused = await door.ask(path)
    refused.refused(401, "invalid_api_key")
    assert refused.json()["error"]["param"] == "authorization", "the page knows what to ask for"
    # The feed has no end: its head says enough.
    client = await Client.connect(door.port)
    await client.send(request("GET", path, headers={"Authorization": "Bearer secret"}))
    assert (await client.head()).status == 200
    await client.closed()


@pytest.mark.parametrize("path", ["/health", "/ready"])
async def test_probes_need_no_token(open_door: Open, path: str) -> None:
    assert (await (await open_door(token="secret")).ask(path)).status == 200


ASKED = "This port asks for the admin token: send it as Authorization: Bearer TOKEN."
WRONG = "This is not the admin token."
REFUSED = {
    "": ASKED,
    "Bearer": ASKED,
    "Bearer ": ASKED,
    "Basic secret": ASKED,
    "secret": ASKED,
    "Bearer wrong": WRONG,
    "Bearer secre": WRONG,
    "Bearer secretx": WRONG,
    "Bearer SECRET": WRONG,
    "Bearer  secret": WRONG,
    "Bearer \xe4": WRONG,
}


@pytest.mark.parametrize("given", REFUSED)
async def test_a_token_that_is_missing_is_told_from_a_wrong_one(open_door: Open, given: str) -> None:
    door = await open_door(token="secret")
    refused = await door.ask("/admin/ledger", Authorization=given)
    refused.refused(401, "invalid_api_key")
    error = refused.json()["error"]
    assert (error["message"], error["param"]) == (REFUSED[given], "authorization")


async def test_without_the_header_the_token_is_asked_for(open_door: Open) -> None:
    refused = await (await open_door(token="secret")).ask("/admin/ledger")
    assert refused.json()["error"]["message"] == ASKED


@pytest.mark.parametrize("given", ["s", "secret", "s" * 5000])
async def test_a_token_of_any_length_is_compared_whole_and_in_constant_time(
    open_door: Open, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    compared: list[tuple[bytes, bytes]] = []
    compare = hmac.compare_digest

    def noted(ours: bytes, theirs: bytes) -> bool:
        compared.append((ours, theirs))
        return compare(ours, theirs)

    monkeypatch.setattr(hmac, "compare_digest", noted)
    await (await open_door(token="secret")).ask("/admin/ledger", Authorization=f"Bearer {given}")
    assert [(len(ours), len(theirs)) for ours, theirs in compared] == [(32, 32)]


@pytest.mark.parametrize("given", ["bearer secret", "BEARER secret"])
async def test_the_scheme_may_be_spelled_as_one_likes(open_door: Open, given: str) -> None:
    assert (await (await open_door(token="secret")).ask("/admin/ledger", Authorization=given)).status == 200


async def test_with_a_token_any_name_of_the_host_will_do(open_door: Open) -> None:
    door = await open_door(token="secret")
    answer = await door.ask("/admin/ledger", Authorization="Bearer secret", Host="router.example")
    assert answer.status == 200


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "LOCALHOST:1", "127.0.0.1:8081", "[::1]", "[::1]:9"]
)
async def test_without_a_token_loopback_names_enter(open_door: Open, host: str) -> None:
    assert (await (await open_door()).ask("/admin/ledger", Host=host)).status == 200


FOREIGN = [
    "evil.example",
    "127.0.0.1.evil.example",
    "localhost.evil.example:8081",
    "",
    "127.0.0.2",
    "user@evil",
]


@pytest.mark.parametrize("host", FOREIGN)
async def test_without_a_token_other_names_do_not(open_door: Open, host: str) -> None:
    (await (await open_door()).ask("/admin/ledger", Host=host)).refused(401, "invalid_api_key")


ORIGINS = {
    "http://localhost:3000": 200,
    "http://127.0.0.1": 200,
    "http://evil.example": 401,
    "https://127.0.0.1.evil.example": 401,
    "null": 401,
    "": 401,
    "file://": 401,
}


@pytest.mark.parametrize("origin", ORIGINS)
async def test_without_a_token_pages_of_other_sites_do_not(open_door: Open, origin: str) -> None:
    answer = await (await open_door()).ask("/admin/ledger", Origin=origin)
    assert answer.status == ORIGINS[origin]


@pytest.mark.parametrize("path", ["/admin/live", "/admin/ledger", "/metrics"])
@pytest.mark.parametrize(
    ("site", "status"), [("cross-site", 401), ("same-site", 401), ("same-origin", 200), ("none", 200)]
)
async def test_without_a_token_pages_of_other_sites_hold_no_place(
    open_door: Open, path: str, site: str, status: int
) -> None:
    """A picture or a script of theirs names no origin, but browsers say where it is asked from."""
    client = await Client.connect((await open_door()).port)
    await client.send(request("GET", path, headers={"Sec-Fetch-Site": site}))
    await eventually(lambda: bytes(client.wire.unread).startswith(b"HTTP/1.1 %d " % status), "it answers")
    await client.closed()


@pytest.mark.parametrize(
    ("options", "headers"),
    [
        ({}, {"Host": "["}),
        ({}, {"Origin": "http://["}),
        ({"token": "secret"}, {"Authorization": "Bearer \xff"}),
    ],
)
async def test_odd_fields_are_refused_like_any_other(
    open_door: Open, options: dict[str, str], headers: dict[str, str]
) -> None:
    (await (await open_door(**options)).ask("/admin/ledger", **headers)).refused(401, "invalid_api_key")


# Changing something without a token

DRAIN = "/admin/replicas/a/drain"


async def drained(open_door: Open, raw_headers: dict[str, str], body: bytes | None = None) -> int:
    """The status of an order to drain; only a good one may have an effect."""
    door = await open_door()
    headers = {key: value.format(port=door.port) for key, value in raw_headers.items()}
    answer = await door.send(request("POST", DRAIN, body, headers))
    assert ((await door.rows())["a"]["state"] == "draining") is (answer.status == 200)
    return answer.status


async def test_no_body_needs_no_content_type(open_door: Open) -> None:
    assert await drained(open_door, {}) == 200


@pytest.mark.parametrize("kind", ["application/json", "APPLICATION/JSON", "application/json; charset=utf-8"])
async def test_json_may_be_sent(open_door: Open, kind: str) -> None:
    assert await drained(open_door, {"Content-Type": kind}, b"{}") == 200


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "text/plain; application/json",
        "application/jsonp",
        "",
    ],
)
@pytest.mark.parametrize("body", [b"{}", b"", None])
async def test_what_a_form_can_send_changes_nothing(open_door: Open, kind: str, body: bytes | None) -> None:
    assert await drained(open_door, {"Content-Type": kind}, body) == 400


async def test_a_body_of_no_declared_kind_changes_nothing(open_door: Open) -> None:
    door = await open_door()
    raw = f"POST {DRAIN} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n{{}}".encode()
    (await door.send(raw)).refused(400, "invalid_request")
    assert (await door.rows())["a"]["state"] == "ready"


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("127.0.0.1:{port}", "http://127.0.0.1:{port}", 200),
        ("localhost:{port}", "http://LOCALHOST:{port}", 200),
        ("127.0.0.1:{port}", "http://127.0.0.1:3000", 401),
        ("127.0.0.1:{port}", "http://localhost:{port}", 401),
        ("127.0.0.1:{port}", "http://evil.example", 401),
        ("127.0.0.1:{port}", "null", 401),
        ("127.0.0.1:{port}", "", 401),
        ("evil.example", "http://evil.example", 401),
    ],
)
async def test_only_pages_of_this_very_port_may_change_something(
    open_door: Open, host: str, origin: str, status: int
) -> None:
    assert await drained(open_door, {"Host": host, "Origin": origin}) == status


@pytest.mark.parametrize("field", ["X-Forwarded-For", "X-Real-IP", "Forwarded"])
async def test_who_claims_to_come_from_here_is_not_believed(open_door: Open, field: str) -> None:
    assert await drained(open_door, {"Host": "evil.example", field: "127.0.0.1"}) == 401


# Changing something with a token

ORDERS = [
    ("POST", "/admin/replicas"),
    ("POST", "/admin/replicas/a/drain"),
    ("POST", "/admin/replicas/a/undrain"),
    ("DELETE", "/admin/replicas/a"),
    ("POST", "/admin/requests/c/cancel"),
]


@pytest.mark.parametrize(("method", "path"), ORDERS)
@pytest.mark.parametrize("given", [None, "Bearer wrong", "Bearer sk-of-a-caller"])
async def test_every_order_needs_the_token(
    open_door: Open, method: str, path: str, given: str | None
) -> None:
    door = await open_door(token="secret")
    headers = {"X-Forwarded-For": "127.0.0.1"} | ({"Authorization": given} if given else {})
    body = b'{"url":"http://c.invalid"}' if path == "/admin/replicas" else None
    (await door.send(request(method, path, body, headers))).refused(401, "invalid_api_key")
    rows = await door.rows(Authorization="Bearer secret")
    assert {name: row["state"] for name, row in rows.items()} == {"a": "ready", "b": "ready"}


async def test_with_the_token_origin_and_kind_do_not_matter(open_door: Open) -> None:
    door = await open_door(token="secret")
    headers = {"Authorization": "Bearer secret", "Origin": "http://elsewhere", "Content-Type": "text/plain"}
    assert (await door.send(request("POST", DRAIN, b"", headers))).status == 200


async def test_another_token_counts_from_when_it_is_set(open_door: Open) -> None:
    door = await open_door(token="old")
    door.api.reconfigure(AdminSettings.model_validate({"token": "new"}))
    assert (await door.ask("/admin/ledger", Authorization="Bearer old")).status == 401
    assert (await door.ask("/admin/ledger", Authorization="Bearer new")).status == 200
