"""Follow-ups of the Responses API meet the replica that holds the response."""

import asyncio
import json

import pytest

from tests.fakes.client import request
from tests.fakes.message import LAST_CHUNK, chunk
from tests.fakes.replica import SSE_HEAD, Connection, FakeReplica, Received, held, sized
from tests.fakes.running import StartRouter
from tests.fakes.wire import eventually

PATH = "/v1/responses"
UNKNOWN = sized(b'{"error":{"message":"no such response"}}', status="404 Not Found")


class Keeper:
    """A replica that stores what it answers, and knows nothing of what others have stored."""

    def __init__(self, name: str, *, stream: bool = False, models: list[str] | None = None) -> None:
        self.name = name
        self.stream = stream
        self.stored: set[str] = set()
        self.fake = FakeReplica(self._serve, name=name)
        if models:
            self.fake.probes.models = list(models)

    async def _serve(self, received: Received, connection: Connection) -> None:
        if received.method == "POST" and received.target == PATH:
            previous = json.loads(received.body).get("previous_response_id")
            if previous is not None and previous not in self.stored:
                await connection.send(UNKNOWN)
                return
            await connection.send(self._made())
            return
        response_id = received.target[len(PATH) + 1 :].partition("/")[0].partition("?")[0]
        known = response_id in self.stored
        await connection.send(sized(json.dumps({"id": response_id}).encode()) if known else UNKNOWN)

    def _made(self) -> bytes:
        response_id = f"resp_{self.name}_{len(self.stored)}"
        self.stored.add(response_id)
        document = json.dumps({"id": response_id, "object": "response", "output": [{"id": "msg_1"}]})
        if not self.stream:
            return sized(document.encode())
        created = f'event: response.created\ndata: {{"type":"response.created","response":{document}}}\n\n'
        return SSE_HEAD + chunk(created.encode()) + LAST_CHUNK


def create(previous: str | None = None, model: str = "m1") -> bytes:
    fields = {"model": model, "input": "hi", "store": True}
    if previous is not None:
        fields["previous_response_id"] = previous
    return request("POST", PATH, json.dumps(fields).encode())


def id_of(body: bytes) -> str:
    return "resp_" + body.partition(b'"resp_')[2].partition(b'"')[0].decode()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_every_follow_up_meets_the_owner(start_router: StartRouter, stream: bool) -> None:
    """H50"""
    keepers = [Keeper(name, stream=stream) for name in "abc"]
    router = await start_router(*(keeper.fake for keeper in keepers), policy="round-robin")
    for _ in range(30):
        answer = await router.ask(create())
        first, owner = id_of(answer.body.entity), answer.head.get("x-replicarouter-replica")
        second = await router.ask(create(previous=first))
        assert second.status == 200
        followed = [
            second,
            await router.get(f"{PATH}/{first}"),
            await router.get(f"{PATH}/{first}?stream=true"),
            await router.get(f"{PATH}/{first}/input_items"),
            await router.ask(request("POST", f"{PATH}/{first}/cancel", b"")),
            await router.ask(request("DELETE", f"{PATH}/{first}")),
        ]
        assert [one.status for one in followed] == [200] * 6
        assert {one.head.get("x-replicarouter-replica") for one in followed} == {owner}


async def test_the_owner_decides_the_pool_when_no_model_is_named(start_router: StartRouter) -> None:
    one, other = Keeper("a", models=["m1"]), Keeper("b", models=["m2"])
    router = await start_router(one.fake, other.fake)
    first = id_of((await router.ask(create(model="m2"))).body.entity)
    assert (await router.get(f"{PATH}/{first}")).status == 200
    (await router.get(f"{PATH}/resp_unheard_of")).refused(404, "response_not_found")


async def test_an_unknown_id_is_for_the_engine_to_judge(start_router: StartRouter) -> None:
    keepers = [Keeper(name) for name in "ab"]
    router = await start_router(*(keeper.fake for keeper in keepers))
    answer = await router.get(f"{PATH}/resp_from_before_a_restart")
    assert (answer.status, answer.body.raw) == (404, UNKNOWN.partition(b"\r\n\r\n")[2])


async def test_a_response_whose_owner_was_removed_is_gone(start_router: StartRouter) -> None:
    keepers = [Keeper(name) for name in "ab"]
    router = await start_router(*(keeper.fake for keeper in keepers))
    answer = await router.ask(create())
    first, owner = id_of(answer.body.entity), answer.head.get("x-replicarouter-replica")
    await router.settled()
    assert (await router.admin(f"/admin/replicas/{owner}", "DELETE")).status == 204
    (await router.get(f"{PATH}/{first}")).refused(404, "response_not_found")
    (await router.ask(create(previous=first))).refused(404, "response_not_found")
    assert (await router.ask(create())).status == 200


async def test_an_owner_that_is_down_is_not_replaced(start_router: StartRouter) -> None:
    keepers = {name: Keeper(name) for name in "ab"}
    router = await start_router(*(keeper.fake for keeper in keepers.values()))
    answer = await router.ask(create())
    first, owner = id_of(answer.body.entity), answer.head.get("x-replicarouter-replica")
    assert owner is not None
    await keepers[owner].fake.refuse()
    keepers[owner].fake.reset_all()

    async def refused() -> bool:
        status = (await router.get(f"{PATH}/{first}")).status
        assert status in {502, 503}
        return status == 503

    await eventually(refused, "the owner is known to be down")
    answer = await router.ask(create(previous=first))
    answer.refused(503, "no_replica")
    assert int(answer.head.get("retry-after") or 0) >= 1
    assert all(received.method == "POST" for keeper in keepers.values() for received in keeper.fake.requests)


async def test_who_waits_for_an_owner_that_leaves_is_told_at_once(start_router: StartRouter) -> None:
    gate = asyncio.Event()
    keepers = {name: Keeper(name) for name in "ab"}
    router = await start_router(
        *(keeper.fake for keeper in keepers.values()), admission={"max_outstanding_per_replica": 1}
    )
    answer = await router.ask(create())
    first, owner = id_of(answer.body.entity), answer.head.get("x-replicarouter-replica")
    assert owner is not None
    keepers[owner].fake.script = held(b"", gate, sized(b"{}"))
    running = await router.begin(request("GET", f"{PATH}/{first}"))
    await router.stage(sent=1)
    waiting = await router.begin(request("GET", f"{PATH}/{first}"))
    await router.stage(sent=1, queued=1)
    assert (await router.admin(f"/admin/replicas/{owner}", "DELETE")).status == 202
    gate.set()
    assert (await running.answer()).status == 200
    (await waiting.answer()).refused(404, "response_not_found")
