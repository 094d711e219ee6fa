"""What a browser is told of who may read the router's answers."""

import pytest
from multidict import CIMultiDict

from replicarouter.access.cors import MAX_AGE, Cors
from replicarouter.protocol.answer import LocalAnswer

PAGE = "https://chat.example"


def asked(**more: str) -> CIMultiDict[str]:
    names = {name.replace("_", "-"): value for name, value in more.items()}
    return CIMultiDict({"Origin": PAGE, "Access-Control-Request-Method": "POST", **names})


def allowed(answer: LocalAnswer | None) -> dict[str, str]:
    assert answer is not None
    assert answer.status == 204
    assert answer.body == b""
    return dict(answer.headers)


def test_nothing_is_said_while_it_is_off() -> None:
    cors = Cors()
    assert not cors
    assert cors.fields(PAGE) == cors.fields(None) == b""
    assert cors.preflight("OPTIONS", asked()) is None


def test_a_listed_page_may_read_answers_and_our_receipts() -> None:
    lines = Cors([PAGE, "http://localhost:3000"]).fields(PAGE).split(b"\r\n")
    assert b"Access-Control-Allow-Origin: https://chat.example" in lines
    assert b"Vary: Origin" in lines
    (exposed,) = [line for line in lines if line.startswith(b"Access-Control-Expose-Headers")]
    for receipt in (b"X-Request-Id", b"X-Replicarouter-Replica", b"Server-Timing", b"Retry-After"):
        assert receipt in exposed
    assert lines[-1] == b""


@pytest.mark.parametrize(
    "origin", [None, "https://evil.example", "https://chat.example.evil", "null", "", "https://chat.example/"]
)
def test_others_may_not_and_caches_know_that_it_depends(origin: str | None) -> None:
    assert Cors([PAGE]).fields(origin) == b"Vary: Origin\r\n"


@pytest.mark.parametrize("origin", [None, PAGE, "null"])
def test_any_page_may_where_any_is_allowed(origin: str | None) -> None:
    fields = Cors(["*"]).fields(origin)
    assert fields.startswith(b"Access-Control-Allow-Origin: *\r\n")
    assert b"Vary" not in fields


def test_cookies_are_never_allowed() -> None:
    assert b"Credentials" not in Cors(["*"]).fields(PAGE) + Cors([PAGE]).fields(PAGE)
    assert "Access-Control-Allow-Credentials" not in allowed(Cors([PAGE]).preflight("OPTIONS", asked()))


@pytest.mark.parametrize("origins", [[PAGE], ["*"]])
def test_preflight_says_what_may_be_sent(origins: list[str]) -> None:
    headers = asked(Access_Control_Request_Headers="authorization, content-type")
    fields = allowed(Cors(origins).preflight("OPTIONS", headers))
    assert {"POST", "GET", "DELETE"} <= set(fields["Access-Control-Allow-Methods"].split(", "))
    assert fields["Access-Control-Allow-Headers"] == "authorization, content-type"
    assert fields["Access-Control-Max-Age"] == str(MAX_AGE)


def test_preflight_without_further_headers_allows_none() -> None:
    assert "Access-Control-Allow-Headers" not in allowed(Cors([PAGE]).preflight("OPTIONS", asked()))


@pytest.mark.parametrize("names", ["a\x00b", "a: b", "x" * 5000, "é"])
def test_names_that_are_none_are_not_echoed(names: str) -> None:
    headers = asked(Access_Control_Request_Headers=names)
    assert "Access-Control-Allow-Headers" not in allowed(Cors([PAGE]).preflight("OPTIONS", headers))


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("POST", asked()),
        ("OPTIONS", CIMultiDict({"Origin": PAGE})),
        ("OPTIONS", CIMultiDict({"Access-Control-Request-Method": "POST"})),
        ("OPTIONS", CIMultiDict({"Access-Control-Request-Method": "POST", "Origin": "https://evil.example"})),
    ],
)
def test_other_requests_are_no_preflight_that_is_granted(method: str, headers: CIMultiDict[str]) -> None:
    assert Cors([PAGE]).preflight(method, headers) is None
