"""The queues of several workers are one queue: its order, its bound, and no room is lost between them."""

import time
from collections.abc import Callable, Iterator

import pytest

from replicarouter.commons.layout import ALL_QUEUED, OUTSTANDING
from replicarouter.commons.memory import Commons
from tests.admission.workers import House, Workers, rows

Open = Callable[..., Workers]


@pytest.fixture
def open_workers() -> Iterator[Open]:
    opened: list[Workers] = []

    def start(*replicas: str, workers: int = 2, **rules: object) -> Workers:
        commons = Commons(workers)
        house = House(rows(commons, replicas or ("a",)), **rules)  # type: ignore[arg-type]
        opened.append(Workers(commons, house))
        return opened[-1]

    yield start
    for one in opened:
        one.close()
        one.commons.close()


def at_rest(workers: Workers) -> None:
    commons = workers.commons
    wait_until(lambda: not any(commons.outstanding(row) for row in workers.house.rows.values()))
    assert commons.total(OUTSTANDING) == 0
    assert commons.header[ALL_QUEUED] == 0


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_the_oldest_is_first_wherever_it_waits(open_workers: Open) -> None:
    workers = open_workers()
    workers.come(0, "first")
    for number in range(8):
        workers.come(number % 2, f"{number}", brief=True)
    workers.end(0, "first")

    workers.await_granted("first", *map(str, range(8)))
    at_rest(workers)


def test_the_most_urgent_is_first_wherever_it_waits(open_workers: Open) -> None:
    workers = open_workers()
    workers.come(0, "first")
    for number, rank in enumerate((3, 2, 1, 0, 3, 2, 1, 0)):
        workers.come(number // 4, f"{rank}{number}", rank=rank, brief=True)
    workers.end(0, "first")

    workers.await_granted("first", "03", "07", "12", "16", "21", "25", "30", "34")
    at_rest(workers)


def test_a_newcomer_does_not_overtake_who_waits_elsewhere(open_workers: Open) -> None:
    workers = open_workers()
    workers.come(0, "first")
    workers.come(1, "second")
    workers.come(0, "third", brief=True)
    workers.end(0, "first")
    workers.await_granted("first", "second")
    workers.end(1, "second")
    workers.await_granted("first", "second", "third")
    at_rest(workers)


def test_callers_share_though_each_comes_to_a_worker_of_its_own(open_workers: Open) -> None:
    workers = open_workers(most=1)
    workers.come(0, "first", caller="a")
    for number in range(6):
        workers.come(0, f"a{number}", caller="a", brief=True)
    for number in range(6):
        workers.come(1, f"b{number}", caller="b", brief=True)
    workers.end(0, "first")
    while len(workers.granted) < 13:
        workers.next_word()

    callers = [name[0] for name in workers.granted[1:]]
    # One after the other, although all of the first caller's came before: it held the room, too.
    assert callers in (["b", "a"] * 6, ["a", "b"] * 6)
    assert [name for name in workers.granted if name[0] == "b"] == [f"b{number}" for number in range(6)]
    at_rest(workers)


def test_shares_are_by_weight_over_workers(open_workers: Open) -> None:
    workers = open_workers(most=1, shares=(("gold", 3.0),))
    workers.come(0, "first", caller="other")
    for number in range(12):
        workers.come(number % 2, f"gold{number}", caller="gold", brief=True)
        workers.come(number % 2, f"iron{number}", caller="iron", brief=True)
    workers.end(0, "first")
    while len(workers.granted) < 25:
        workers.next_word()

    for turns in (4, 8, 12, 16):
        gold = sum(name.startswith("gold") for name in workers.granted[1 : 1 + turns])
        assert abs(gold - turns * 3 / 4) <= 1, workers.granted
    at_rest(workers)


def test_who_holds_least_is_first_though_it_holds_elsewhere(open_workers: Open) -> None:
    workers = open_workers(most=4)
    for number in range(3):
        workers.come(0, f"held{number}", caller="a")
    workers.come(1, "held", caller="b")
    workers.come(1, "a", caller="a")
    workers.come(1, "b", caller="b")
    workers.end(0, "held0")

    # Caller a still holds two, at another worker; b holds one.
    workers.await_granted("held0", "held1", "held2", "held", "b")
    workers.end(1, "b")
    workers.await_granted("held0", "held1", "held2", "held", "b", "a")


def test_the_queue_has_one_bound_for_all(open_workers: Open) -> None:
    workers = open_workers(requests=2)
    workers.come(0, "first")
    workers.come(0, "second", brief=True)
    workers.come(1, "third", brief=True)
    workers.say(1, "come", "fourth", "", 0, True)
    workers.await_word("refused fourth queue_full")
    workers.say(0, "come", "fifth", "", 0, True)
    workers.await_word("refused fifth queue_full")
    workers.end(0, "first")

    workers.await_granted("first", "second", "third")
    at_rest(workers)


def test_room_is_taken_though_the_first_in_line_does_not_move(open_workers: Open) -> None:
    workers = open_workers()
    workers.come(0, "first")
    workers.come(1, "second", brief=True)
    workers.come(0, "third", brief=True)
    workers.children[1].stop()
    workers.end(0, "first")

    workers.await_granted("first", "third")


def test_room_of_a_worker_that_died_is_for_those_that_wait(open_workers: Open) -> None:
    workers = open_workers()
    workers.come(1, "first")
    workers.come(1, "second")
    workers.come(0, "third")
    workers.children[1].kill()
    workers.commons.vacate(1)
    workers.await_granted("first", "third")
    workers.start(1)
    workers.come(1, "fourth", brief=True)
    workers.end(0, "third")

    workers.await_granted("first", "third", "fourth")
    at_rest(workers)


def test_who_leaves_holds_nobody_up(open_workers: Open) -> None:
    workers = open_workers()
    workers.come(0, "first")
    workers.come(1, "second")
    workers.come(0, "third", brief=True)
    workers.say(1, "leave", "second")
    workers.end(0, "first")

    workers.await_granted("first", "third")
    at_rest(workers)


@pytest.mark.parametrize("most", [1, 3])
def test_no_room_is_lost_in_a_crowd(open_workers: Open, most: int) -> None:
    workers = open_workers("a", "b", workers=3, most=most, requests=1000)
    names = [f"n{number}" for number in range(150)]
    for number, name in enumerate(names):
        workers.say(number % 3, "come", name, f"caller {number % 5}", number % 2, True)
    while len(workers.granted) < len(names):
        workers.next_word()
        assert all(workers.commons.outstanding(row) <= most for row in workers.house.rows.values())

    assert sorted(workers.granted) == sorted(names)
    at_rest(workers)
