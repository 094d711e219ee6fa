"""Background loops that follow the replicas of a fleet."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from replicarouter.fleet.replica import Replica
from replicarouter.fleet.watches import Watches
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
