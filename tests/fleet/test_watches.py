"""Background loops that follow the replicas of a fleet."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from replicarouter.fleet.replica import Replica
from replicarouter.fleet.watches import Watches
from tests.fakes.virtual_time import run
from tests.fakes.wire import eventually
from tests.scene import a_replica


class Looks:
    """Counts the looks at each replica; the first at a name in `slow` takes for ever."""

    def __init__(self) -> None:
        self.seen: dict[str, int] = {}
        self.broken_off: list[str] = []
        self.slow: set[str] = set()

    async def look(self, replica: Replica) -> None:
        self.seen[replica.name] = self.seen.get(replica.name, 0) + 1
        if replica.name in self.slow:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.broken_off.append(replica.name)
                raise

    def times(self, name: str) -> int:
        return self.seen.get(name, 0)


@pytest.fixture
def looks() -> Looks:
    return Looks()


@pytest_asyncio.fixture
async def watches(looks: Looks) -> AsyncIterator[Watches]:
    one = Watches(looks.look, 0.01, "look at")
    yield one
    await one.stop()


async def test_every_replica_is_looked_at_again_and_again(looks: Looks, watches: Watches) -> None:
    watches.start([a_replica("a"), a_replica("b")])
    await eventually(lambda: min(looks.times("a"), looks.times("b")) >= 3, "three looks at both")


async def test_a_first_round_can_be_spread_over_the_interval(looks: Looks) -> None:
    watches = Watches(looks.look, 0.2, "look at")
    watches.start([a_replica("a"), a_replica("b")], spread=True)
    assert looks.seen == {}
    await eventually(lambda: looks.times("a"), "the first one")
    assert looks.times("b") == 0
    await watches.stop()


def moments_of(count: int, *, late: int = 0, spread: bool = False) -> list[list[float]]:
    """When each of `count` replicas is looked at, in three seconds of virtual time with a look a second;
    `late` more are added after the first."""
    seen: dict[str, list[float]] = {}

    async def look(replica: Replica) -> None:
        seen.setdefault(replica.name, []).append(round(asyncio.get_running_loop().time(), 6))

    async def work() -> None:
        watches = Watches(look, 1.0, "look at")
        watches.start([a_replica(f"r{number}") for number in range(count)], spread=spread)
        await asyncio.sleep(1.0)
        for number in range(late):
            watches.add(a_replica(f"late{number}"))
        await asyncio.sleep(2.4)
        await watches.stop()

    run(work())
    return list(seen.values())


def crowd(moments: list[list[float]], turn: int) -> Counter[float]:
    """How many replicas are looked at in each place of the period, in their looks number `turn`."""
    return Counter(round(looks[turn] % 1, 3) for looks in moments)


def test_first_looks_come_at_once_and_the_others_evenly_spread() -> None:
    moments = moments_of(4)

    assert [looks[0] for looks in moments] == [0, 0, 0, 0]
    assert crowd(moments, 1) == crowd(moments, 2) == {0.25: 1, 0.5: 1, 0.75: 1, 0.0: 1}


@pytest.mark.parametrize("spread", [False, True])
def test_many_replicas_are_looked_at_a_few_at_a_time(spread: bool) -> None:
    moments = moments_of(64, spread=spread)

    assert set(crowd(moments, 1).values()) == {4}
    assert set(crowd(moments_of(100, spread=spread), 1).values()) == {4}


def test_those_that_join_together_are_looked_at_apart() -> None:
    moments = moments_of(0, late=32)

    assert {looks[0] for looks in moments} == {1.0}
    assert max(crowd(moments, 1).values()) <= 3


async def test_who_is_added_is_looked_at_and_who_is_removed_is_not(looks: Looks, watches: Watches) -> None:
    first, second = a_replica("a"), a_replica("b")
    watches.start([first])
    watches.add(second)
    await eventually(lambda: looks.times("b") >= 2, "two looks at the second")
    watches.remove(first)
    watches.remove(first)
    before = looks.times("a")
    await eventually(lambda: looks.times("b") >= 5, "more looks at the second")
    assert looks.times("a") == before


async def test_a_look_that_is_under_way_is_broken_off(looks: Looks, watches: Watches) -> None:
    replica = a_replica("a")
    looks.slow.add("a")
    watches.start([replica])
    await eventually(lambda: looks.times("a"), "it has begun")
    watches.remove(replica)
    await eventually(lambda: looks.broken_off == ["a"], "it is broken off")


@pytest.mark.parametrize("when", ["before", "after"])
async def test_nobody_is_looked_at_before_the_start_and_after_the_end(
    looks: Looks, watches: Watches, when: str
) -> None:
    if when == "after":
        watches.start([])
        await watches.stop()
    watches.add(a_replica("a"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert looks.seen == {}
