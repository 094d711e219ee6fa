"""Pages in a browser: preflights are answered here, and every answer says who may read it."""

from typing import Any

import pytest

from tests.fakes.client import Answer, chat, request
from tests.fakes.replica import SHORT_STREAM, FakeReplica, reply, sized
from tests.fakes.running import RunningRouter, StartRouter

PAGE = "https://chat.example"
ORIGIN = {"Origin": PAGE}
PREFLIGHT = {
    **ORIGIN,
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type,x-stainless-os",
}
ENGINES_OWN = (
    "Access-Control-Allow-Origin: *\r\naccess-control-allow-credentials: true\r\n"
    "Access-Control-Expose-Headers: X-Engine\r\nVary: Accept-Encoding\r\n"
)


def readable(answer: Answer) -> bool:
    """Whether the page may read it; a browser refuses an answer that says it twice."""
    allowed = answer.head.all("access-control-allow-origin")
    assert len(allowed) < 2
    assert answer.head.all("access-control-allow-credentials") == []
    return allowed in ([PAGE], ["*"])


async def open_to_pages(start_router: StartRouter, *origins: str, **options: Any) -> RunningRouter:
    replica = FakeReplica(reply(sized(b"{}", headers=ENGINES_OWN)))
    return await start_router(replica, cors={"allow_origins": list(origins)}, **options)


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/models", "/metrics", "/health", "/nowhere", "/v1/realtime"]
)
@pytest.mark.parametrize("keys", [{}, {"api_keys": ["sk-1"]}], ids=["open", "locked"])
async def test_preflight_is_answered_before_any_key_is_asked_for(
    start_router: StartRouter, path: str, keys: dict[str, Any]
) -> None:
    router = await open_to_pages(start_router, PAGE, **keys)
    client = await router.connect()
    for _ in range(2):
        answer = await client.ask(request("OPTIONS", path, headers=PREFLIGHT))
        assert answer.status == 204
        assert answer.body.raw == b""
        assert answer.head.get("content-length") is None
        assert answer.head.get("content-type") is None
        assert readable(answer)
        assert "POST" in (answer.head.get("access-control-allow-methods") or "")
        assert answer.head.get("access-control-allow-headers") == PREFLIGHT["Access-Control-Request-Headers"]
        assert int(answer.head.get("access-control-max-age") or "0") > 0
        assert answer.head.all("vary") == ["Origin"]


async def test_every_answer_says_that_the_page_may_read_it(start_router: StartRouter) -> None:
    router = await open_to_pages(start_router, PAGE)
    answers = [
        await router.ask(chat(headers=ORIGIN)),
        await router.ask(chat(model="nope", headers=ORIGIN)),
        await router.get("/v1/chat/completions", ORIGIN),
        await router.get("/nowhere", ORIGIN),
        await router.get("/v1/models", ORIGIN),
        await router.get("/v1/models/nope", ORIGIN),
        await router.get("/health", ORIGIN),
        await router.get("/metrics", ORIGIN),
    ]
    assert [answer.status for answer in answers] == [200, 404, 405, 404, 200, 404, 200, 200]
    for answer in answers:
        assert readable(answer)
        assert "Origin" in answer.head.all("vary")
        exposed = ", ".join(answer.head.all("access-control-expose-headers"))
        assert "X-Replicarouter-Replica" in exposed
        assert "Server-Timing" in exposed
    assert "X-Engine" in ", ".join(answers[0].head.all("access-control-expose-headers"))
    assert "Accept-Encoding" in answers[0].head.all("vary")


async def test_a_refusal_for_lack_of_a_key_can_be_read(start_router: StartRouter) -> None:
    router = await open_to_pages(start_router, PAGE, api_keys=["sk-1"])
    answer = await router.ask(chat(headers=ORIGIN))
    answer.refused(401, "invalid_api_key")
    assert readable(answer)


async def test_streams_can_be_read(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica(reply(SHORT_STREAM)), cors={"allow_origins": ["*"]})
    answer = await router.ask(chat(headers=ORIGIN))
    assert answer.head.all("access-control-allow-origin") == ["*"]
    assert SHORT_STREAM.endswith(answer.body.raw)


async def test_an_engines_refusal_can_be_read_and_says_it_once(start_router: StartRouter) -> None:
    busy = sized(b"{}", status="429 Too Many", headers=ENGINES_OWN)
    replicas = [FakeReplica(reply(busy)), FakeReplica(reply(busy))]
    router = await start_router(*replicas, cors={"allow_origins": [PAGE]})
    answer = await router.ask(chat(headers=ORIGIN))
    assert answer.status == 429
    assert readable(answer)


@pytest.mark.parametrize("origin", [{}, {"Origin": "https://evil.example"}, {"Origin": "null"}])
async def test_other_pages_may_not_whatever_the_engine_says(
    start_router: StartRouter, origin: dict[str, str]
) -> None:
    router = await open_to_pages(start_router, PAGE)
    for answer in (await router.ask(chat(headers=origin)), await router.get("/nowhere", origin)):
        assert not readable(answer)
    preflight = request("OPTIONS", "/v1/chat/completions", headers={**PREFLIGHT, "Origin": PAGE, **origin})
    if origin:
        answer = await router.ask(preflight)
        assert not readable(answer)
        assert answer.head.get("access-control-allow-methods") is None


async def test_while_it_is_off_the_engines_own_word_passes(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica(reply(sized(b"{}", headers=ENGINES_OWN))))
    answer = await router.ask(chat(headers=ORIGIN))
    assert answer.head.all("access-control-allow-origin") == ["*"]
    assert answer.head.all("access-control-allow-credentials") == ["true"]
    answer = await router.ask(request("OPTIONS", "/v1/chat/completions", headers=PREFLIGHT))
    answer.refused(405, "method_not_allowed")
    assert answer.head.get("access-control-allow-origin") is None


@pytest.mark.parametrize(
    "origin", ["HTTPS://Chat.Example", "https://chat.example/", "https://chat.example:443"]
)
async def test_an_origin_may_be_spelled_as_people_do(start_router: StartRouter, origin: str) -> None:
    router = await open_to_pages(start_router, origin)
    assert readable(await router.ask(chat(headers=ORIGIN)))
