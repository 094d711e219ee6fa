"""When a worker tells the others what it has learned."""

import asyncio
import pickle
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from replicarouter.admission.owners import Owners
from replicarouter.admission.plan import PolicyPlan
from replicarouter.policies.news import PLACED
from replicarouter.settings import PolicyOptions
from replicarouter.workers.bus import Bus
from replicarouter.workers.teller import NEWS_PERIOD, Teller
from tests.admission.rig import desks_for
from tests.fakes.wire import eventually
from tests.scene import a_fleet, a_request, an_exchange, named


class Workplace:
    """A worker that serves replica a by session, and what its keeper is to pass on."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []
        self.bus = Bus({}, {}, lambda: None)
        self.keeper = Bus({"pass on": self._pass_on}, {}, lambda: None)
        self.fleet = a_fleet("a")
        self.owners = Owners()
        self.desks = desks_for(PolicyPlan("session", {}, PolicyOptions()))
        self.teller = Teller(3, self.bus, self.desks, self.owners)
        self.desks.share(0, 2, self.teller.stir)
        self.owners.share(stir=self.teller.stir)

    def learn(self, response_id: str) -> None:
        self.owners.learn(response_id, named(self.fleet, "a"))

    def place(self, session: int) -> None:
        request = a_request()
        request.session = session
        desk = self.desks.of(self.fleet.pool_for("m1"))
        desk.sent(request, an_exchange(), named(self.fleet, "a"), None, 1000.0)

    async def has_told(self) -> None:
        await eventually(lambda: bool(self.heard), "it is told")

    def _pass_on(self, message: bytes) -> None:
        self.heard.append(pickle.loads(message[4:]))


@pytest_asyncio.fixture
async def workplace() -> AsyncIterator[Workplace]:
    workplace = Workplace()
    buses = workplace.bus, workplace.keeper
    for bus, end in zip(buses, socket.socketpair(), strict=True):
        end.setblocking(False)
        await bus.connect(end)
    yield workplace
    for bus in buses:
        bus.close()
    await eventually(lambda: not any(bus.open for bus in buses), "both ends are closed")


async def test_what_is_learned_is_told_though_nothing_is_in_flight(workplace: Workplace) -> None:
    workplace.learn("resp_1")
    await workplace.has_told()
    assert workplace.heard == [("news", 3, [], [("resp_1", "a")])]


async def test_where_policies_place_keys_is_told(workplace: Workplace) -> None:
    workplace.place(1)
    await workplace.has_told()
    [(name, worker, [(model, policy, shadow, [(word, key, replica, *_)])], made)] = workplace.heard
    assert (name, worker, [*made]) == ("news", 3, [])
    assert (model, policy, shadow) == ("m1", "session", False)
    assert (word, key, replica) == (PLACED, 1, "a")


async def test_what_comes_within_a_period_is_told_at_once_and_what_comes_later_after_it(
    workplace: Workplace,
) -> None:
    for turn in range(1, 4):
        for number in range(3):
            workplace.learn(f"resp_{turn}_{number}")
        workplace.place(turn)
        await workplace.has_told()
        [(_, _, told, made)] = workplace.heard
        workplace.heard.clear()
        assert len(told) == 1
        assert [response_id for response_id, _ in made] == [f"resp_{turn}_{number}" for number in range(3)]


async def test_where_there_are_no_news_nothing_is_told(workplace: Workplace) -> None:
    workplace.teller.stir()
    # Timers go off in order: this one behind the teller's.
    await asyncio.sleep(NEWS_PERIOD)
    workplace.learn("resp_1")
    await workplace.has_told()
    assert workplace.heard == [("news", 3, [], [("resp_1", "a")])]
