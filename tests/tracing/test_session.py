"""The session to a collector, on real sockets: whatever is answered, it costs little time and memory."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import requests
import uvloop

from replicarouter.tracing.session import MOST_READ, CollectorSession, RedirectedElsewhere
from tests.fakes.certificates import Authority
from tests.fakes.collector import Answer, RawCollector, answering, raw_collector

LIMIT = 0.5
"""Seconds for all of a request."""

MOST = 5 * LIMIT

OK = b"HTTP/1.1 200 OK\r\n"
EMPTY = b"Content-Length: 0\r\n\r\n"


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


async def post(session: requests.Session, collector: RawCollector) -> requests.Response:
    return await asyncio.to_thread(
        session.post, collector.endpoint, data=b"spans", timeout=LIMIT, allow_redirects=False
    )


WHOLE = {
    "empty": [OK + EMPTY],
    "short": [OK + b"Content-Length: 3\r\n\r\nabc"],
    "chunked": [OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"],
    "most": [OK + b"Content-Length: %d\r\n\r\n" % MOST_READ, b"x" * MOST_READ],
    "no-content": [b"HTTP/1.1 204 No Content\r\n\r\n"],
}


@pytest.mark.parametrize("case", WHOLE)
async def test_a_connection_is_used_again_after_an_answer_that_was_read_whole(case: str) -> None:
    with CollectorSession() as session:
        async with raw_collector(answering(*WHOLE[case])) as collector:
            for _ in range(3):
                assert (await post(session, collector)).ok
            await asyncio.sleep(2 * LIMIT)
            assert (await post(session, collector)).ok
            assert (collector.requests, collector.connections) == (4, 1)


CUT = {
    "endless": answering(OK + b"\r\n", b"x" * 65536, again=0.0),
    "endless-chunks": answering(
        OK + b"Transfer-Encoding: chunked\r\n\r\n", b"4\r\nabcd\r\n" * 9999, again=0.0
    ),
    "endless-trailers": answering(
        OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"a: b\r\n" * 9999, again=0.0
    ),
    "long": answering(OK + b"Content-Length: 1000000000\r\n\r\n", b"x" * 65536, again=0.0),
    "trickle": answering(OK + b"Content-Length: 1000\r\n\r\n", b"x", again=LIMIT / 10),
    "trickle-to-close": answering(OK + b"Connection: close\r\n\r\n", b"x", again=LIMIT / 10),
    "bad-chunk": answering(OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"),
    "bad-gzip": answering(OK + b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc"),
}


@pytest.mark.parametrize("case", CUT)
async def test_the_body_of_an_answer_is_read_no_further_than_it_matters(case: str) -> None:
    with CollectorSession() as session:
        async with raw_collector(CUT[case]) as collector:
            began = time.monotonic()
            response = await post(session, collector)
            assert time.monotonic() - began < MOST
            assert response.status_code == 200
            # What lies in the buffers of both ends is not read.
            assert collector.sent < 10_000_000 or case == "endless-trailers"


SLOW = {
    "silence": answering(b""),
    "trickling-head": answering(OK + b"a: ", b"x", again=LIMIT / 10),
    "trickling-fields": answering(OK, b"a: b\r\n", again=LIMIT / 10),
    "continue-for-ever": answering(b"HTTP/1.1 100 Continue\r\n\r\n", again=0.0),
}


@pytest.mark.parametrize("case", SLOW)
async def test_a_head_that_does_not_come_to_its_end_is_given_up_in_time(case: str) -> None:
    with CollectorSession() as session:
        async with raw_collector(SLOW[case]) as collector:
            began = time.monotonic()
            with pytest.raises(requests.Timeout):
                await post(session, collector)
            assert LIMIT / 2 < time.monotonic() - began < MOST


LOCATIONS = {
    b"http://other.example:4318/v1/traces": "other.example",
    b"https://user:secret@[2001:db8::1]/": "2001:db8::1",
    b"/elsewhere": "the same host",
    b"": "the same host",
    b"http://[::1/": "what is no address",
    b"http://.a..b/": ".a..b",
    b"ftp://a/": "a",
    b"http://\xff\xfe\x1b2J/": r"\u001b",
    b"http://" + b"a" * 7000 + b".com/": "a" * 100 + " (",
}


@pytest.mark.parametrize(
    "location", LOCATIONS, ids=lambda location: location.decode("latin-1")[:20] or "none"
)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308, 300, 304])
async def test_a_redirect_is_not_followed_and_tells_its_host(location: bytes, status: int) -> None:
    answer = b"HTTP/1.1 %d Moved\r\nLocation: %b\r\n" % (status, location)
    with CollectorSession() as session:
        async with raw_collector(answering(answer + EMPTY)) as collector:
            with pytest.raises(RedirectedElsewhere) as told:
                await post(session, collector)
            assert collector.requests == 1
    assert LOCATIONS[location] in str(told.value)
    assert str(status) in str(told.value)
    assert "secret" not in str(told.value)
    assert str(told.value).isprintable()


async def test_the_body_of_a_redirect_is_not_read_without_end() -> None:
    answer = answering(b"HTTP/1.1 307 Moved\r\nLocation: /\r\n\r\n", b"x" * 65536, again=0.0)
    with CollectorSession() as session:
        async with raw_collector(answer) as collector:
            with pytest.raises(RedirectedElsewhere):
                await post(session, collector)
            assert collector.sent < 10_000_000


@pytest.mark.parametrize(
    "answer",
    [answering(OK + b"Content-Length: 1000\r\n\r\n", b"x", again=LIMIT / 10), SLOW["trickling-fields"]],
    ids=["body", "head"],
)
async def test_the_limit_holds_over_tls(answer: Answer, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with CollectorSession() as session:
        session.verify = str(authority.cert)
        async with raw_collector(answer, authority.issue().server()) as collector:
            began = time.monotonic()
            with suppress(requests.Timeout):
                url = collector.endpoint.replace("http:", "https:")
                await asyncio.to_thread(session.post, url, data=b"spans", timeout=LIMIT)
            assert LIMIT / 2 < time.monotonic() - began < MOST
            assert collector.requests == 1


async def test_no_cookie_is_kept() -> None:
    answer = OK + b"Set-Cookie: a=b\r\n" + EMPTY
    with CollectorSession() as session:
        async with raw_collector(answering(answer)) as collector:
            await post(session, collector)
        assert len(session.cookies) == 0


async def test_the_environment_names_no_proxy_and_no_password(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "netrc").write_text("default login a password b\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with CollectorSession() as session:
        async with raw_collector(answering(OK + EMPTY)) as collector:
            response = await post(session, collector)
    assert "authorization" not in response.request.headers
