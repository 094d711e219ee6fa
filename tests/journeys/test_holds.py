"""Requests that a policy holds for one busy replica: seen, in nobody's way, and lost in no way."""

import asyncio

import pytest

from replicarouter.fleet.lifecycle import State
from replicarouter.fleet.replica import Replica
from replicarouter.policies import POLICIES
from replicarouter.policies.base import View, Wait
from replicarouter.policies.least_outstanding import LeastOutstanding
from replicarouter.protocol.request import InferenceRequest
from tests.fakes.client import Client, chat
from tests.fakes.replica import OK, FakeReplica, held, reply, sized
from tests.fakes.running import RunningRouter, StartRouter
from tests.fakes.wire import eventually

PATIENCE = 30.0


class Faithful(LeastOutstanding):
    """Who asks for an answer that is not streamed wants the first replica, and is held for it."""

    patience = PATIENCE

    def pick(self, request: InferenceRequest, view: View) -> Replica | Wait:  # type: ignore[override]
        holder = view.replicas[0]
        gone = holder.state is not State.READY
        if request.stream or gone or view.waited >= self.patience:
            return super().pick(request, view)
        return holder if holder in view.candidates else Wait(holder, self.patience)


class Hasty(Faithful):
    patience = 0.2


class Wistful(LeastOutstanding):
    """Wants the first replica; once another one has refused a request, it would rather wait."""

    def pick(self, request: InferenceRequest, view: View) -> Replica | Wait:  # type: ignore[override]
        holder, first = view.replicas[0], view.candidates[0]
        if first is holder or len(view.candidates) > 1 or view.waited >= PATIENCE:
            return first
        return Wait(holder, PATIENCE)


class Scene:
    """A replica that is busy with one request, one that is not, and a request held for the first."""

    def __init__(self, router: RunningRouter, busy: FakeReplica, idle: FakeReplica) -> None:
        self.router, self.busy, self.idle = router, busy, idle
        self.gate = asyncio.Event()
        self.first: Client
        self.held: Client

    @classmethod
    async def start(cls, start_router: StartRouter, *, waits: bool = True) -> "Scene":
        busy, idle = FakeReplica(), FakeReplica()
        router = await start_router(busy, idle, policy="random", admission={"max_outstanding_per_replica": 1})
        scene = cls(router, busy, idle)
        busy.script = held(b"", scene.gate, OK)
        scene.first = await router.begin(chat(stream=False))
        await router.stage(sent=1)
        scene.held = await router.begin(chat(stream=False))
        if waits:
            await router.stage(sent=1, queued=1)
        return scene


@pytest.fixture(autouse=True)
def faithful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICIES, "random", Faithful)


async def test_it_waits_in_the_queue_and_gets_its_replica(start_router: StartRouter) -> None:
    scene = await Scene.start(start_router)
    scene.gate.set()
    assert (await scene.first.answer()).status == 200
    answer = await scene.held.answer()
    assert answer.head.get("x-replicarouter-replica") == scene.busy.name
    assert (len(scene.busy.requests), len(scene.idle.requests)) == (2, 0)


async def test_others_pass_it_by(start_router: StartRouter) -> None:
    scene = await Scene.start(start_router)
    for _ in range(3):
        answer = await scene.router.ask(chat())
        assert answer.head.get("x-replicarouter-replica") == scene.idle.name
    await scene.router.stage(sent=1, queued=1)
    scene.gate.set()
    assert (await scene.held.answer()).status == 200


async def test_when_its_time_is_over_it_goes_elsewhere(
    start_router: StartRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(POLICIES, "random", Hasty)
    scene = await Scene.start(start_router, waits=False)
    answer = await scene.held.answer()
    assert answer.head.get("x-replicarouter-replica") == scene.idle.name
    scene.gate.set()


async def test_when_its_replica_is_drained_it_goes_elsewhere_at_once(start_router: StartRouter) -> None:
    scene = await Scene.start(start_router)
    await scene.router.admin(f"/admin/replicas/{scene.busy.name}/drain", "POST")
    answer = await scene.held.answer()
    assert answer.head.get("x-replicarouter-replica") == scene.idle.name
    scene.gate.set()


async def test_a_client_that_leaves_meanwhile_is_never_sent(start_router: StartRouter) -> None:
    scene = await Scene.start(start_router)
    await scene.held.closed()
    await scene.router.stage(sent=1)
    scene.gate.set()
    assert (await scene.first.answer()).status == 200
    await eventually(lambda: len(scene.busy.requests) == 1, "one request came")
    assert len(scene.idle.requests) == 0


async def test_who_was_refused_is_not_held_while_another_has_room(
    start_router: StartRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held, it would be answered with the refusal: what is full is not waited for after one."""
    monkeypatch.setitem(POLICIES, "random", Wistful)
    gate = asyncio.Event()
    busy = FakeReplica(held(b"", gate, OK))
    refusing = FakeReplica(reply(sized(b'{"error": {"message": "busy"}}', status="429 Too Many Requests")))
    idle = FakeReplica()
    limits = {"max_outstanding_per_replica": 1}
    router = await start_router(busy, refusing, idle, policy="random", admission=limits)
    first = await router.begin(chat(stream=False))
    await router.stage(sent=1)

    answer = await router.ask(chat(stream=False, headers={"X-Request-Id": "mine"}))
    assert (answer.status, answer.head.get("x-replicarouter-replica")) == (200, idle.name)
    attempts = (await router.admin("/admin/decisions/mine")).json()["attempts"]
    assert [(one["chosen"], one["waited"]) for one in attempts] == [(refusing.name, 0), (idle.name, 0)]
    gate.set()
    assert (await first.answer()).status == 200
