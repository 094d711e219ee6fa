"""What is found at an address, and behind it."""

import random
import socket
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiohttp import ClientSession, TCPConnector
from aiohttp.abc import AbstractResolver, ResolveResult

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


async def test_a_key_that_is_only_for_those_who_ask_goes_to_no_other_replica(
    session: ClientSession, start_router: StartRouter
) -> None:
    plain, locked = Scripted("plain"), Scripted("locked", key="sk-engine", settings={"api_key": "sk-engine"})
    router = await start_router(plain, locked)
    for one in (plain, locked):
        one.probed.clear()
    scene = await look(session, place_of(router, spare_key="sk-engine"))
    assert [replica.models for replica in scene.replicas] == [[MODEL], [MODEL]]
    assert {asked.head.get("authorization") for asked in plain.probed} == {None}
    # The router's probes have the key, too: the check comes without it first.
    assert [replica.door.key for replica in scene.replicas] == ["", "sk-engine"]
    assert None in {asked.head.get("authorization") for asked in locked.probed}


async def test_a_replica_that_refuses_the_key_it_asked_for_is_told_that_it_is_wrong(
    session: ClientSession, start_router: StartRouter
) -> None:
    locked = Scripted("locked", key="sk-engine", settings={"api_key": "sk-engine"})
    router = await start_router(locked)
    (wrong,) = (await look(session, place_of(router, spare_key="sk-other"))).replicas
    assert wrong.problem == "locked answers 401: the key is wrong"


class Elsewhere(AbstractResolver):
    """Another host, whose ports of routers are those of one that runs here."""

    def __init__(self, router: RunningRouter) -> None:
        self._ports = {8080: router.port, 8081: router.admin_port}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        there = {"hostname": host, "host": HOST, "port": self._ports[port], "family": socket.AF_INET}
        return [ResolveResult(**there, proto=0, flags=0)]  # type: ignore[typeddict-item]

    async def close(self) -> None:
        pass


async def test_the_token_goes_to_another_host_only_if_its_admin_port_is_named(
    start_router: StartRouter,
) -> None:
    router = await start_router(Scripted("one"), admin={"token": "secret-token"})
    connector = TCPConnector(resolver=Elsewhere(router), force_close=True)
    async with ClientSession(connector=connector) as session:
        url, admin = "http://router.test:8080", "http://router.test:8081"
        guessed = await look(session, Place(url=url, token="secret-token"))
        named = await look(session, Place(url=url, admin=admin, token="secret-token"))
    assert guessed.blind is not None
    assert guessed.blind.why.endswith(
        "401: it wants a token, which is sent to another host only if --admin names it"
    )
    assert guessed.blind.cure == f"give --admin {admin}, if that is it"
    assert (named.blind, len(named.replicas)) == (None, 1)


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
