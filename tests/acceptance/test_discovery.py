"""What is found at an address, and behind it."""

import random
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiohttp import ClientSession

from replicarouter.acceptance import CheckError, Place, Scene, Status, Wishes, discover, open_session
from tests.acceptance.scripted import MODEL, Scripted
from tests.fakes.client import HOST
from tests.fakes.running import RunningRouter, StartRouter


@pytest_asyncio.fixture
async def session() -> AsyncIterator[ClientSession]:
    async with open_session() as opened:
        yield opened


async def look(session: ClientSession, place: Place) -> Scene:
    return await discover(place, Wishes(), session, time.monotonic, random.Random(1))


def place_of(router: RunningRouter, **more: object) -> Place:
    known = {"url": f"http://{HOST}:{router.port}", "admin": f"http://{HOST}:{router.admin_port}", **more}
    return Place(**known)  # type: ignore[arg-type]


async def test_an_engine_alone_is_its_only_replica(session: ClientSession) -> None:
    async with Scripted() as one:
        scene = await look(session, Place(url=one.url))
    assert not scene.router
    assert [replica.door for replica in scene.replicas] == [scene.main]
    assert scene.models == [MODEL]
    assert scene.doors(MODEL) == [scene.main]


async def test_replicas_of_a_router_are_told_by_its_admin_api(
    session: ClientSession, start_router: StartRouter
) -> None:
    router = await start_router(Scripted("one"), Scripted("two"))
    scene = await look(session, place_of(router))
    assert scene.router
    assert [(replica.name, replica.state, replica.models) for replica in scene.replicas] == [
        ("one", "ready", [MODEL]),
        ("two", "ready", [MODEL]),
    ]
    assert [door.name for door in scene.doors(MODEL)] == ["the router", "one", "two"]


async def test_replicas_that_are_given_replace_those_that_are_told(
    session: ClientSession, start_router: StartRouter
) -> None:
    one, two = Scripted("one"), Scripted("two")
    router = await start_router(one, two)
    scene = await look(session, place_of(router, replicas=(f"{two.url}/", "http://127.0.0.1:1")))
    named, stranger = scene.replicas
    assert (named.name, named.state) == ("two", "ready")
    assert (stranger.name, stranger.state) == ("127.0.0.1:1", "")
    assert "refuses connections" in stranger.problem


async def test_replicas_that_are_given_need_no_admin_api(
    session: ClientSession, start_router: StartRouter
) -> None:
    one, two = Scripted("one"), Scripted("two")
    router = await start_router(one, two)
    scene = await look(session, place_of(router, admin="http://127.0.0.1:1", replicas=(one.url, two.url)))
    assert (scene.admin, scene.blind) == (None, None)
    assert scene.too_few(MODEL) is None


async def test_a_missing_or_a_wrong_token_leaves_the_replicas_unknown_and_tells_which_it_is(
    session: ClientSession, start_router: StartRouter
) -> None:
    router = await start_router(Scripted("one"), admin={"token": "secret-token"})
    told = f"the admin API at http://{HOST}:{router.admin_port} answers 401: "
    for token, why in (("", "it wants a token"), ("other", "the token is wrong")):
        scene = await look(session, place_of(router, token=token))
        assert scene.replicas == ()
        assert scene.blind is not None
        assert (scene.blind.status, scene.blind.why) == (Status.FAIL, told + why)
        assert "--token" in scene.blind.cure
    assert len((await look(session, place_of(router, token="secret-token"))).replicas) == 1


async def test_keys_go_where_they_belong(session: ClientSession, start_router: StartRouter) -> None:
    one = Scripted("one")
    router = await start_router(one, api_keys=["sk-client"])
    with pytest.raises(CheckError, match="it wants a key: give --key or set OPENAI_API_KEY"):
        await look(session, place_of(router))
    with pytest.raises(CheckError, match="the key is wrong: see --key"):
        await look(session, place_of(router, key="sk-other"))
    scene = await look(session, place_of(router, key="sk-client", replica_key="sk-engine"))
    assert scene.models == [MODEL]
    sent = {request.head.get("authorization") for request in one.probed}
    assert sent == {None, "Bearer sk-engine"}


async def test_nobody_at_the_address_is_told(session: ClientSession) -> None:
    with pytest.raises(CheckError, match="refuses connections"):
        await look(session, Place(url="http://127.0.0.1:1"))


async def test_an_admin_api_elsewhere_is_told_with_the_flag(
    session: ClientSession, start_router: StartRouter
) -> None:
    router = await start_router(Scripted("one"))
    silent = (await look(session, place_of(router, admin="http://127.0.0.1:1"))).blind
    other = (await look(session, place_of(router, admin=f"http://{HOST}:{router.port}"))).blind
    assert silent is not None
    assert other is not None
    assert silent.why == "the admin API at http://127.0.0.1:1 does not answer"
    assert other.why.endswith("answers 404, as another program would")
    assert silent.cure == other.cure == "give --admin URL"


async def test_the_operators_port_is_not_checked_and_the_other_is_told(
    session: ClientSession, start_router: StartRouter
) -> None:
    plain = await start_router(Scripted("one"))
    locked = await start_router(Scripted("one"), admin={"token": "secret-token"})
    for router, key in ((plain, ""), (locked, ""), (locked, "sk-client"), (locked, "secret-token")):
        with pytest.raises(CheckError, match=r"operator's port; check .*, such as .*:8080$"):
            await look(session, Place(url=f"http://{HOST}:{router.admin_port}", key=key))


async def test_an_engine_that_wants_a_key_is_not_checked_without(session: ClientSession) -> None:
    async with Scripted(locked=True) as one:
        with pytest.raises(CheckError, match="401: it wants a key: give --key"):
            await look(session, Place(url=one.url))


async def test_a_replica_that_wants_a_key_is_told_with_its_own_flag(
    session: ClientSession, start_router: StartRouter
) -> None:
    locked = Scripted("locked", locked=True)
    router = await start_router(locked, ready=0)
    (missing,) = (await look(session, place_of(router))).replicas
    (wrong,) = (await look(session, place_of(router, replica_key="sk-other"))).replicas
    assert missing.problem == "locked answers 401: it wants a key"
    assert missing.cure == "give --replica-key or set VLLM_API_KEY"
    assert (wrong.problem, wrong.cure) == (
        "locked answers 401: the key is wrong",
        "see --replica-key and VLLM_API_KEY",
    )


async def test_nobody_is_asked_for_replicas_that_are_not_wanted(
    session: ClientSession, start_router: StartRouter
) -> None:
    one = Scripted("one")
    router = await start_router(one)
    scene = await look(session, place_of(router, router_only=True))
    assert (scene.router, scene.replicas, scene.admin) == (True, (), None)
    assert scene.blind is not None
    assert scene.blind.status is Status.SKIPPED
    async with Scripted() as engine:
        with pytest.raises(CheckError, match="no router is here"):
            await look(session, Place(url=engine.url, router_only=True))
