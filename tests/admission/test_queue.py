"""Requests that wait: whose turn it is, removal from anywhere, and who leaves a full queue."""

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from replicarouter.admission.fairness import Book
from replicarouter.admission.queue import SLACK, Queue, Waiter
from replicarouter.fleet.lifecycle import Event
from replicarouter.fleet.registry import Pool
from replicarouter.fleet.replica import Replica
from tests.admission.conftest import MakeWaiter
from tests.scene import a_fleet, a_replica, named


class Server:
    """Serves a queue as the controller does: whoever is granted leaves, pays and holds."""

    def __init__(self, queue: Queue, *models: str) -> None:
        self.queue = queue
        self.models = models or ("m1",)
        self.held: list[Waiter] = []

    def serve(self, may: Callable[[Waiter], bool] = lambda _: True) -> Waiter | None:
        """Grant the next of those who `may`."""

        def take(waiter: Waiter) -> bool:
            if not may(waiter):
                return False
            account = waiter.account
            account.held += 1
            account.book.charge(account)
            self.queue.remove(waiter)
            self.queue.shift(account)
            self.held.append(waiter)
            return True

        return self.held[-1] if self.queue.offer(self.models, take) else None

    def finish(self, waiter: Waiter) -> None:
        self.held.remove(waiter)
        waiter.account.held -= 1
        self.queue.shift(waiter.account)

    def run(self, count: int = 0) -> list[Waiter]:
        """Serve one after the other, `count` of them or all that wait."""
        served: list[Waiter] = []
        while (not count or len(served) < count) and (waiter := self.serve()) is not None:
            served.append(waiter)
            self.finish(waiter)
        return served


def callers(waiters: list[Waiter]) -> str:
    return " ".join(waiter.account.caller for waiter in waiters)


@pytest.fixture
def queue() -> Queue:
    return Queue()


@pytest.fixture
def add(queue: Queue, a_waiter: MakeWaiter) -> MakeWaiter:
    """Make a waiter and queue it."""

    def one(*args: object, **options: object) -> Waiter:
        waiter = a_waiter(*args, **options)
        queue.add(waiter)
        return waiter

    return one


# One caller


async def test_requests_of_one_caller_come_in_order_of_arrival(queue: Queue, add: MakeWaiter) -> None:
    waiters = [add("a") for _ in range(5)]

    assert Server(queue).run() == waiters
    assert not queue.waiters


async def test_they_do_so_over_all_models_of_a_replica(queue: Queue, add: MakeWaiter) -> None:
    one, other, third = Pool("m1"), Pool("m2"), Pool("m3")
    waiters = [add("a", pool) for pool in (one, other, other, third, one, other)]

    assert Server(queue, "m1", "m2").run() == [waiters[number] for number in (0, 1, 2, 4, 5)]
    assert Server(queue, "m4").run() == []
    assert Server(queue, "m3").run() == [waiters[3]]


async def test_a_waiter_can_be_taken_out_once(queue: Queue, add: MakeWaiter, a_waiter: MakeWaiter) -> None:
    waiters = [add("a") for _ in range(3)]

    assert queue.remove(waiters[1])
    assert not queue.remove(waiters[1])
    assert not queue.remove(a_waiter("a"))
    assert list(queue.waiters) == [waiters[0], waiters[2]]
    assert Server(queue).run() == [waiters[0], waiters[2]]


async def test_a_pool_is_waited_for_until_its_last_waiter_leaves(queue: Queue, add: MakeWaiter) -> None:
    pool = Pool("m1")
    assert not queue.waiting_for(pool)

    waiter = add("a", pool)
    assert queue.waiting_for(pool)
    assert not queue.waiting_for(Pool("m2"))

    queue.remove(waiter)
    assert not queue.waiting_for(pool)


async def test_what_one_cannot_take_is_offered_to_the_next(queue: Queue, add: MakeWaiter) -> None:
    waiters = [add(caller) for caller in ("a", "a", "b", "c", "c")]
    server = Server(queue)

    assert server.serve(lambda waiter: waiter is waiters[4]) is waiters[4]
    assert server.serve(lambda waiter: waiter is waiters[1]) is waiters[1]
    assert server.serve(lambda _: False) is None
    # Who had to pass lost nothing by it.
    assert server.run() == [waiters[2], waiters[0], waiters[3]]


# Several callers


async def test_callers_take_turns_whoever_has_more_waiting(queue: Queue, add: MakeWaiter) -> None:
    for caller, count in (("a", 6), ("b", 3), ("c", 1)):
        for _ in range(count):
            add(caller)

    assert callers(Server(queue).run()) == "a b c a b a b a a a"


@pytest.mark.parametrize("room", [1, 2, 4, 16])
@pytest.mark.parametrize(("heavy", "expected"), [("double", 2 / 3), ("triple", 3 / 4), ("tenth", 1 / 11)])
async def test_weights_set_the_shares_whatever_the_room(
    queue: Queue, add: MakeWaiter, room: int, heavy: str, expected: float
) -> None:
    for _ in range(400):
        add("a")
        add(heavy)
    server, chance = Server(queue), Random(room)
    for _ in range(room):
        server.serve()
    served: Counter[str] = Counter()
    for _ in range(330):
        server.finish(chance.choice(server.held))
        waiter = server.serve()
        assert waiter is not None
        served[waiter.account.caller] += 1

    assert served[heavy] / 330 == pytest.approx(expected, abs=0.05)


async def test_who_holds_less_comes_first_though_its_turn_is_later(queue: Queue, add: MakeWaiter) -> None:
    add("a")
    later = add("b")
    server = Server(queue)
    later.account.held = 0
    holder = next(iter(queue.waiters))
    holder.account.held = 4
    queue.shift(holder.account)
    later.account.turn = 9.0
    queue.shift(later.account)

    assert callers(server.run()) == "b a"


@pytest.mark.parametrize(("quick", "expected"), [("b", 3), ("double", 4)])
async def test_who_keeps_its_requests_long_does_not_get_all_the_room(
    queue: Queue, add: MakeWaiter, quick: str, expected: int
) -> None:
    for _ in range(60):
        add("slow")
        add(quick)
    server = Server(queue)
    for _ in range(6):
        server.serve()
    for _ in range(40):
        server.finish(next(waiter for waiter in server.held if waiter.account.caller == quick))
        server.serve()

    assert Counter(callers(server.held).split()) == {"slow": 6 - expected, quick: expected}


async def test_when_its_oldest_request_left_a_caller_is_as_old_as_its_next(
    queue: Queue, add: MakeWaiter
) -> None:
    oldest = add("a")
    add("b")
    add("a")
    queue.remove(oldest)

    assert callers(Server(queue).run()) == "b a"


async def test_a_newcomer_comes_after_one_turn_of_each_at_most(queue: Queue, add: MakeWaiter) -> None:
    for _ in range(1000):
        add("a")
        add("b")
    server = Server(queue)
    server.run(500)
    newcomer = add("late")

    assert newcomer in server.run(3)


async def test_ever_new_callers_do_not_starve_an_old_one(queue: Queue, add: MakeWaiter) -> None:
    old = [add("a") for _ in range(3)]
    for number in range(10):
        add(f"early {number}")
    server, served = Server(queue), []
    for number in range(60):
        add(f"new {number}")
        served += server.run(1)

    assert set(old) <= set(served)


async def test_leaving_and_coming_back_gains_nothing(queue: Queue, add: MakeWaiter) -> None:
    for _ in range(100):
        add("a")
    add("tenth")
    server = Server(queue)
    served = []
    for _ in range(66):
        served += server.run(1)
        if served[-1].account.caller == "tenth":
            add("tenth")

    assert callers(served).count("tenth") == pytest.approx(6, abs=1)


async def test_requests_that_left_cost_their_caller_no_turn(queue: Queue, add: MakeWaiter) -> None:
    gone = [add("a") for _ in range(50)]
    add("b")
    add("b")
    for waiter in gone:
        queue.remove(waiter)
    add("a")

    assert callers(Server(queue).run()) == "b a b"


async def test_between_books_the_older_request_comes_first(queue: Queue, add: MakeWaiter, book: Book) -> None:
    other, second = Book({}), Pool("m2")
    book.now = 1000.0
    waiters = [add("x", second, book=other), add("a"), add("b"), add("x", second, book=other), add("a")]

    assert Server(queue, "m1", "m2").run() == waiters


# Priority


async def test_the_more_urgent_come_first_whatever_they_hold(queue: Queue, add: MakeWaiter) -> None:
    last, urgent, middle, urgent_too = (add("a", rank=rank) for rank in (2, 0, 1, 0))
    other = add("b", rank=1)
    other.account.held = 5
    queue.shift(other.account)

    assert Server(queue).run() == [urgent, urgent_too, middle, other, last]


async def test_within_a_rank_callers_take_turns(queue: Queue, add: MakeWaiter) -> None:
    for rank in (1, 0):
        for caller in ("a", "a", "b", "b"):
            add(caller, rank=rank)

    served = Server(queue).run()
    assert [waiter.exchange.priority for waiter in served] == [0] * 4 + [1] * 4
    assert callers(served) == "a b a b a b a b"


async def test_the_urgent_come_first_over_all_models(queue: Queue, add: MakeWaiter) -> None:
    waiters = [add("a", Pool(model), rank=rank) for model, rank in (("m1", 1), ("m2", 0), ("m1", 0))]

    assert Server(queue, "m1", "m2").run() == [waiters[number] for number in (1, 2, 0)]


# A full queue


async def test_an_empty_queue_has_nobody_to_shed(queue: Queue, a_waiter: MakeWaiter) -> None:
    assert queue.to_shed_for(a_waiter("a").account, 0) is None


async def test_the_newest_of_the_largest_caller_makes_room_for_another(
    queue: Queue, add: MakeWaiter, a_waiter: MakeWaiter
) -> None:
    flood = [add("a"), add("a", Pool("m2")), add("a")]
    add("b")

    assert queue.to_shed_for(a_waiter("c").account, 0) is flood[2]
    queue.remove(flood[2])
    assert queue.to_shed_for(a_waiter("c").account, 0) is flood[1]


async def test_nobody_makes_room_for_a_caller_who_has_as_many(
    queue: Queue, add: MakeWaiter, a_waiter: MakeWaiter
) -> None:
    for caller in ("a", "a", "b", "double", "double"):
        add(caller)

    assert queue.to_shed_for(a_waiter("a").account, 0) is None
    assert queue.to_shed_for(a_waiter("b").account, 0) is None
    assert queue.to_shed_for(a_waiter("double").account, 0) is not None
    assert queue.to_shed_for(a_waiter("tenth").account, 0) is None


async def test_the_least_urgent_make_room_for_the_more_urgent_only(
    queue: Queue, add: MakeWaiter, a_waiter: MakeWaiter
) -> None:
    add("a", rank=0)
    add("a", rank=0)
    first, last = add("b", rank=1), add("b", rank=1)

    assert queue.to_shed_for(a_waiter("a").account, 0) is last
    assert queue.to_shed_for(a_waiter("b").account, 1) is None
    assert queue.to_shed_for(a_waiter("c").account, 1) is last
    assert queue.to_shed_for(a_waiter("c").account, 2) is None
    queue.remove(first)
    queue.remove(last)
    assert queue.to_shed_for(a_waiter("b").account, 1) is None


# At any size


@pytest.mark.parametrize("seed", range(8))
async def test_any_coming_and_going_leaves_nothing_behind(
    queue: Queue, add: MakeWaiter, book: Book, seed: int
) -> None:
    chance, server = Random(seed), Server(queue, "m1", "m2")
    pools = [Pool("m1"), Pool("m2")]
    inside: list[Waiter] = []
    for _ in range(1500):
        step = chance.random()
        if step < 0.5:
            inside.append(add(chance.choice("abcd"), chance.choice(pools), rank=chance.randrange(3)))
        elif step < 0.6 and inside:
            assert queue.remove(inside.pop(chance.randrange(len(inside))))
        elif step < 0.8:
            waiter = server.serve(lambda _: chance.random() < 0.7)
            if waiter is not None:
                inside.remove(waiter)
        elif server.held:
            server.finish(chance.choice(server.held))
        assert set(queue.waiters) == set(inside)
    for waiter in list(server.held):
        server.finish(waiter)
    assert sorted(waiter.serial for waiter in server.run()) == sorted(waiter.serial for waiter in inside)

    assert not any(queue.waiting_for(pool) for pool in pools)
    assert not queue.waiters
    assert not any(book.account(name).lines for name in "abcd")


async def test_a_lane_keeps_few_outdated_entries(queue: Queue, add: MakeWaiter) -> None:
    for _ in range(5):
        add("b")
    for _ in range(2000):
        add("a")
    lane = next(iter(queue.waiters)).account.lines["m1", 0, None].lane
    Server(queue).run(1900)

    assert len(lane._heap) <= 2 * 2 + SLACK + 1


# For one replica alone


async def test_who_waits_for_one_replica_is_offered_nothing_else(queue: Queue, add: MakeWaiter) -> None:
    one, other = a_replica("a"), a_replica("b")
    waiters = [add("a") for _ in range(3)]
    queue.move(waiters[0], one)
    assert offered(queue) == offered(queue, other) == waiters[1:]
    assert offered(queue, one) == [waiters[0], *waiters[1:]]

    for waiter in waiters[1:]:
        queue.move(waiter, one)
    pool = waiters[0].pool
    assert offered(queue) == []
    assert not queue.waiting_for(pool)
    assert list(queue.waiters) == offered(queue, one) == waiters
    queue.move(waiters[1], None)
    assert queue.waiting_for(pool)


async def test_whoever_waits_for_any_again_is_as_old_as_before(queue: Queue, add: MakeWaiter) -> None:
    one = a_replica("a")
    waiters = [add("a") for _ in range(6)]
    for waiter in waiters[1:5]:
        queue.move(waiter, one)
    for number in (3, 1, 4, 2):
        queue.move(waiters[number], None)
    assert offered(queue) == waiters


async def test_a_turn_is_not_changed_by_a_move(queue: Queue, add: MakeWaiter) -> None:
    waiter = add("a")
    waiter.account.held = 1
    before = waiter.account.turn, waiter.account.book._competing
    queue.move(waiter, a_replica("a"))
    assert (waiter.account.turn, waiter.account.book._competing) == before
    assert len(waiter.account.lines) == 1
    assert queue.remove(waiter)
    assert not waiter.account.lines
    assert not queue._lanes
    queue.move(waiter, None)
    assert not queue._lanes


def offered(queue: Queue, replica: Replica | None = None) -> list[Waiter]:
    """To whom something is offered, in which order."""
    seen: list[Waiter] = []

    def take(waiter: Waiter) -> bool:
        seen.append(waiter)
        return False

    assert not queue.offer(["m1"], take, replica)
    return seen


# May use


async def test_a_waiter_may_use_a_ready_replica_of_its_pool(a_waiter: MakeWaiter) -> None:
    two = a_fleet("a", "b")
    waiter = a_waiter("a", two.pool_for("m1"), tried=(named(two, "b"),))

    assert waiter.may_use(named(two, "a"))
    assert not waiter.may_use(named(two, "b"))
    assert not waiter.may_use(named(a_fleet("c"), "c"))


async def test_a_waiter_may_not_use_a_replica_that_is_not_ready(a_waiter: MakeWaiter) -> None:
    two = a_fleet("a", "b")
    waiter = a_waiter("a", two.pool_for("m1"))
    two.tell(named(two, "a"), Event.FAILED, "gone")

    assert not waiter.may_use(named(two, "a"))


async def test_a_waiter_that_has_given_up_uses_nothing(a_waiter: MakeWaiter) -> None:
    two = a_fleet("a", "b")
    waiter = a_waiter("a", two.pool_for("m1"))
    waiter.granted.cancel()

    assert not waiter.may_use(named(two, "a"))
