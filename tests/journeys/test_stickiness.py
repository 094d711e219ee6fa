"""Related requests meet the same replica, as long as that makes no hot spot."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
import pytest_asyncio

from tests.fakes.client import Answer, chat, request
from tests.fakes.replica import OK, Connection, FakeReplica, Received
from tests.fakes.running import RunningRouter, StartRouter
from tests.fakes.wire import eventually

SESSIONS = [f"session-{number}" for number in range(2000)]
KEYLESS = "none"


def replica_of(answer: Answer) -> str:
    assert answer.status == 200, answer.body.raw[:500]
    return answer.head.get("x-replicarouter-replica") or ""


def affinity_of(answer: Answer) -> str:
    return answer.head.get("x-replicarouter-affinity") or ""


async def ask_all(router: RunningRouter, requests: Sequence[bytes]) -> list[Answer]:
    """The answers to these requests, of which four are under way at a time: any replica may have those."""
    waiting = iter(range(len(requests)))
    answers: dict[int, Answer] = {}

    async def client() -> None:
        connection = await router.connect()
        for number in waiting:
            answers[number] = await connection.ask(requests[number])

    await asyncio.gather(*(client() for _ in range(4)))
    return [answers[number] for number in range(len(requests))]


def with_session(session: str) -> bytes:
    return chat(stream=False, headers={"X-Session-Id": session})


async def ask_sessions(router: RunningRouter) -> tuple[dict[str, str], Counter[str]]:
    """Where each session's request went, and how many came to their replica in which way."""
    answers = await ask_all(router, [with_session(session) for session in SESSIONS])
    places = dict(zip(SESSIONS, map(replica_of, answers), strict=True))
    return places, Counter(map(affinity_of, answers))


def differing(before: Mapping[str, str], after: Mapping[str, str]) -> set[str]:
    return {session for session in SESSIONS if before[session] != after[session]}


def of(places: Mapping[str, str], name: str) -> set[str]:
    return {session for session, place in places.items() if place == name}


def named(*names: str) -> list[FakeReplica]:
    return [FakeReplica(name=name) for name in names]


@pytest_asyncio.fixture
async def start_again(tmp_path: Path) -> AsyncIterator[Callable[..., Any]]:
    """Start one more router in front of replicas that listen already."""
    started: list[RunningRouter] = []

    async def start(replicas: Iterable[FakeReplica], **options: Any) -> RunningRouter:
        router = await RunningRouter.start(replicas, tmp_path, **options)
        started.append(router)
        await router.until_ready(len([*replicas]))
        return router

    yield start
    for router in started:
        await router.leave()
        await router.stop()


async def admit(router: RunningRouter, replica: FakeReplica, count: int) -> None:
    added = await router.admin_send(request("POST", "/admin/replicas", json.dumps(replica.settings).encode()))
    assert added.status == 201, added.body.raw
    await router.until_ready(count)


async def remove(router: RunningRouter, replica: FakeReplica) -> None:
    assert (await router.admin(f"/admin/replicas/{replica.name}", "DELETE")).status == 204


async def test_a_change_of_members_moves_only_the_sessions_it_must(start_router: StartRouter) -> None:
    """H70"""
    replicas, fifth = named("b1", "b2", "b3", "b4"), FakeReplica(name="b5")
    router = await start_router(*replicas, policy="session")
    async with fifth:
        first, results = await ask_sessions(router)
        assert results == {"new": 2000}

        await remove(router, replicas[3])
        without, results = await ask_sessions(router)
        orphans = of(first, "b4")
        assert differing(first, without) == orphans
        assert results == {"hit": 2000 - len(orphans), "rehash": len(orphans)}
        heirs = Counter(without[session] for session in orphans)
        assert all(0.7 < heirs[name] * 3 / len(orphans) < 1.3 for name in ("b1", "b2", "b3")), heirs

        await admit(router, replicas[3], 4)
        assert (await ask_sessions(router))[0] == first

        await admit(router, fifth, 5)
        with_fifth, results = await ask_sessions(router)
        moved = differing(first, with_fifth)
        assert moved == of(with_fifth, "b5")
        assert 0.1 < len(moved) / 2000 <= 0.3
        assert results == {"hit": 2000 - len(moved), "rehash": len(moved)}


async def test_a_restart_and_another_order_of_the_list_move_no_session(
    start_router: StartRouter, start_again: Callable[..., Any]
) -> None:
    """H70"""
    replicas = named("b1", "b2", "b3", "b4")
    router = await start_router(*replicas, policy="session")
    first, _ = await ask_sessions(router)
    await router.leave()
    await router.settled()
    await router.stop()

    started_again = await start_again([replicas[index] for index in (2, 0, 3, 1)], policy="session")

    assert await ask_sessions(started_again) == (first, {"new": 2000})


BLANKS: Mapping[str, Callable[[int], bytes]] = {
    "no header": lambda _: chat(stream=False),
    "an empty header": lambda _: with_session(""),
    "a header of spaces": lambda _: with_session("   "),
}


@pytest.mark.parametrize("blank", BLANKS)
async def test_requests_without_a_session_are_spread(start_router: StartRouter, blank: str) -> None:
    """H71"""
    router = await start_router(*named("b1", "b2", "b3", "b4"), policy="session")

    answers = await ask_all(router, [BLANKS[blank](number) for number in range(400)])

    counts = Counter(map(replica_of, answers))
    assert all(60 <= counts[name] <= 140 for name in ("b1", "b2", "b3", "b4")), counts
    assert {affinity_of(answer) for answer in answers} == {KEYLESS}
    metrics = await router.metrics()
    assert metrics.value("affinity_total", policy="session", result=KEYLESS) == 400


async def test_of_two_session_headers_the_first_counts(start_router: StartRouter) -> None:
    """H71"""
    router = await start_router(*named("b1", "b2", "b3", "b4"), policy="session")
    single = await ask_all(router, [with_session(f"first-{number}") for number in range(400)])

    def twice(number: int) -> bytes:
        head, _, body = with_session(f"first-{number}").partition(b"\r\n\r\n")
        return head + f"\r\nX-Session-ID: second-{number % 7}\r\n\r\n".encode() + body

    double = await ask_all(router, [twice(number) for number in range(400)])

    assert [*map(replica_of, double)] == [*map(replica_of, single)]
    assert {affinity_of(answer) for answer in double} == {"hit"}


async def test_requests_with_and_without_a_session_do_not_disturb_each_other(
    start_router: StartRouter,
) -> None:
    """H71"""
    router = await start_router(*named("b1", "b2", "b3", "b4"), policy="session")
    requests = [
        with_session(f"session-{number % 80}") if number % 2 else chat(stream=False) for number in range(400)
    ]

    answers = await ask_all(router, requests)

    keyless, keyed = answers[::2], answers[1::2]
    counts = Counter(map(replica_of, keyless))
    assert all(0.15 <= counts[name] / 200 <= 0.35 for name in ("b1", "b2", "b3", "b4")), counts
    assert len({(number % 40, replica_of(answer)) for number, answer in enumerate(keyed)}) == 40
    metrics = await router.metrics()
    results = {
        result: metrics.value("affinity_total", policy="session", result=result)
        for result in ("none", "new", "hit", "spill", "rehash")
    }
    assert results == {"none": 200, "new": 40, "hit": 160, "spill": 0, "rehash": 0}


class Turns:
    """Chats of users who share a long system message; a replica answers a turn when it is told to."""

    def __init__(self, router: RunningRouter) -> None:
        self.arrived: dict[str, FakeReplica] = {}
        self.first: dict[str, FakeReplica] = {}
        self.answers: list[Answer] = []
        self._router = router
        self._gates: dict[str, asyncio.Event] = {}
        self._asking: dict[str, asyncio.Future[Answer]] = {}

    def script(self, replica: FakeReplica) -> Callable[[Received, Connection], Any]:
        async def answer(received: Received, connection: Connection) -> None:
            user = json.loads(received.body)["messages"][1]["content"]
            self.arrived[user] = replica
            await self._gates[user].wait()
            await connection.send(OK)

        return answer

    async def begin(self, user: str, turn: int) -> bool:
        """Send a user's next turn; whether it met the replica of the first one."""
        messages = [{"role": "system", "content": "Be kind. " * 667}, {"role": "user", "content": user}]
        for number in range(1, turn):
            messages.append({"role": "assistant", "content": f"answer {number}"})
            messages.append({"role": "user", "content": f"question {number}"})
        self._gates[user] = asyncio.Event()
        raw = chat(stream=False, messages=messages)
        self._asking[user] = asyncio.ensure_future(self._router.ask(raw))
        await eventually(lambda: user in self.arrived, "the turn is at a replica")
        return self.first.setdefault(user, self.arrived[user]) is self.arrived[user]

    async def end(self, user: str) -> None:
        """Let a user have the answer."""
        self._gates[user].set()
        self.answers.append(await self._asking.pop(user))
        del self.arrived[user]


async def test_users_who_share_a_system_message_are_spread_and_their_turns_stay_together(
    start_router: StartRouter,
) -> None:
    """H72"""
    replicas, at_once, users = named("b1", "b2", "b3", "b4"), 60, 200
    router = await start_router(*replicas, policy="prefix-hash")
    turns, random = Turns(router), Random(5)
    for replica in replicas:
        replica.script = turns.script(replica)
    left = {f"I am user {number}.": 3 for number in range(users)}
    idle = [*left]
    stayed = most = 0
    while idle or turns.arrived:
        while idle and len(turns.arrived) < at_once:
            user = idle.pop(random.randrange(len(idle)))
            stayed += await turns.begin(user, 4 - left[user])
            most = max(most, *Counter(turns.arrived.values()).values())
        user = random.choice([*turns.arrived])
        await turns.end(user)
        left[user] -= 1
        if left[user]:
            idle.append(user)

    assert (stayed - users) / (2 * users) >= 0.8
    assert most <= 23  # 1.25 times the mean of 15, and a standard deviation for those who come back
    receipts = Counter(map(affinity_of, turns.answers))
    assert receipts["new"] == users
    assert receipts["hit"] == stayed - users
    assert receipts["spill"] == 3 * users - stayed
    firsts = Counter(replica.name for replica in turns.first.values())
    assert max(firsts.values()) <= 1.25 * users / len(replicas), firsts
    metrics = await router.metrics()
    for result, count in receipts.items():
        assert metrics.value("affinity_total", policy="prefix-hash", result=result) == count


async def test_a_session_that_asks_for_too_much_at_once_is_spread(start_router: StartRouter) -> None:
    gate = asyncio.Event()

    async def script(_: Received, connection: Connection) -> None:
        await gate.wait()
        await connection.send(OK)

    replicas = [FakeReplica(script) for _ in range(4)]
    router = await start_router(*replicas, policy="session")
    asking = asyncio.ensure_future(router.ask_each([with_session("greedy")] * 40))
    await eventually(lambda: sum(len(one.requests) for one in replicas) == 40, "all are at a replica")
    most = max(len(one.requests) for one in replicas)
    gate.set()
    answers = await asking

    assert most <= 13  # 1.25 times the mean of 10, rounded up
    receipts = Counter(map(affinity_of, answers))
    assert receipts["new"] == 1
    assert receipts["spill"] == 40 - 1 - receipts["hit"]
    assert receipts["spill"] >= 40 - 13 - 1
    assert (await router.metrics()).value("affinity_total", policy="session", result="spill") == receipts[
        "spill"
    ]
