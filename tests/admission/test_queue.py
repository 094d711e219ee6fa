"""Requests that wait: in order within and across pools, and removable from anywhere."""

import asyncio

from replicarouter.admission.queue import Queue, Waiter
from replicarouter.fleet.lifecycle import Event
from replicarouter.fleet.registry import Fleet, Pool
from replicarouter.fleet.replica import Replica
from tests.scene import a_fleet, a_request, an_exchange, named


def a_waiter(serial: int, pool: Pool, *, tried: tuple[Replica, ...] = ()) -> Waiter:
    granted = asyncio.get_running_loop().create_future()
    return Waiter(serial, a_request(pool.model), pool, an_exchange(), tried, granted)


def serials(queue: Queue, *models: str) -> list[int]:
    return [waiter.serial for waiter in queue.oldest_first(models)]


async def test_waiters_of_a_pool_come_in_order_of_arrival() -> None:
    queue, pool = Queue(), Pool("m1")
    for serial in (1, 2, 3):
        queue.add(a_waiter(serial, pool))

    assert serials(queue, "m1") == [1, 2, 3]
    assert len(queue) == 3


async def test_waiters_of_several_pools_are_merged_by_arrival() -> None:
    queue, one, other = Queue(), Pool("m1"), Pool("m2")
    for serial, pool in enumerate((one, other, other, one, other)):
        queue.add(a_waiter(serial, pool))

    assert serials(queue, "m1", "m2") == [0, 1, 2, 3, 4]
    assert serials(queue, "m2") == [1, 2, 4]
    assert serials(queue, "m3") == []


async def test_a_waiter_can_be_taken_out_once() -> None:
    queue, pool = Queue(), Pool("m1")
    waiters = [a_waiter(serial, pool) for serial in range(3)]
    for waiter in waiters:
        queue.add(waiter)

    assert queue.remove(waiters[1])
    assert not queue.remove(waiters[1])
    assert serials(queue, "m1") == [0, 2]
    assert len(queue) == 2


async def test_taking_out_a_stranger_changes_nothing() -> None:
    queue = Queue()
    assert not queue.remove(a_waiter(1, Pool("m1")))
    assert len(queue) == 0


async def test_a_pool_is_waited_for_until_its_last_waiter_leaves() -> None:
    queue, pool = Queue(), Pool("m1")
    waiter = a_waiter(1, pool)
    assert not queue.waiting_for(pool)

    queue.add(waiter)
    assert queue.waiting_for(pool)
    assert not queue.waiting_for(Pool("m2"))

    queue.remove(waiter)
    assert not queue.waiting_for(pool)


def fleet() -> Fleet:
    return a_fleet("a", "b")


async def test_a_waiter_may_use_a_ready_replica_of_its_pool() -> None:
    two = fleet()
    waiter = a_waiter(1, two.pool_for("m1"), tried=(named(two, "b"),))

    assert waiter.may_use(named(two, "a"))
    assert not waiter.may_use(named(two, "b"))
    assert not waiter.may_use(named(a_fleet("c"), "c"))


async def test_a_waiter_may_not_use_a_replica_that_is_not_ready() -> None:
    two = fleet()
    waiter = a_waiter(1, two.pool_for("m1"))
    two.tell(named(two, "a"), Event.FAILED, "gone")

    assert not waiter.may_use(named(two, "a"))


async def test_a_waiter_that_has_given_up_uses_nothing() -> None:
    two = fleet()
    waiter = a_waiter(1, two.pool_for("m1"))
    waiter.granted.cancel()

    assert not waiter.may_use(named(two, "a"))
