"""What is found at an address, and behind it."""

import random
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiohttp import ClientSession

from replicarouter.acceptance import CheckError, Place, Scene, Wishes, discover, open_session
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


async def test_a_wrong_token_leaves_the_replicas_unknown_and_tells_the_cure(
    session: ClientSession, start_router: StartRouter
) -> None:
    router = await start_router(Scripted("one"), admin={"token": "secret-token"})
    scene = await look(session, place_of(router))
    assert scene.replicas == ()
    assert scene.blind is not None
    assert "--token" in scene.blind.cure
    assert len((await look(session, place_of(router, token="secret-token"))).replicas) == 1


async def test_keys_go_where_they_belong(session: ClientSession, start_router: StartRouter) -> None:
    one = Scripted("one")
    router = await start_router(one, api_keys=["sk-client"])
    with pytest.raises(CheckError, match="--key"):
        await look(session, place_of(router))
    scene = await look(session, place_of(router, key="sk-client", replica_key="sk-engine"))
    assert scene.models == [MODEL]
    sent = {request.head.get("authorization") for request in one.probed}
    assert sent == {None, "Bearer sk-engine"}


async def test_nobody_at_the_address_is_told(session: ClientSession) -> None:
    with pytest.raises(CheckError, match="refuses connections"):
        await look(session, Place(url="http://127.0.0.1:1"))
