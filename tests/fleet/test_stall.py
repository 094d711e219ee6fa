"""Replicas that have our requests and do nothing, whatever their probes say."""

from typing import Any

import pytest

from replicarouter.engines.base import EngineReading
from replicarouter.exchange import Exchange
from replicarouter.fleet.replica import Replica
from replicarouter.fleet.stall import Finding, StallJudge
from replicarouter.fleet.work import Work
from tests.scene import HandClock, a_replica, an_exchange

AFTER, END = 30.0, 120.0
STEP = 0.5


class Watched:
    """One replica, looked at every half second; its engine is read each time unless `steps` is None."""

    def __init__(self, *, after: float = AFTER, end: float = END) -> None:
        self.judge = StallJudge(after=after, end=end, fresh=3.0)
        self.clock = HandClock()
        self.replica: Replica = a_replica()
        self.waiting: list[Exchange] = []
        self.steps: float | None = 7.0
        self.step_by = 0.0

    def begin(self, **fields: Any) -> Exchange:
        exchange = an_exchange(replica="a", sent_at=self.clock(), **fields)
        self.waiting.append(exchange)
        return exchange

    def look(self) -> Finding:
        self.clock.move(STEP)
        if self.steps is not None:
            self.steps += self.step_by
            self.replica.take(EngineReading(steps=self.steps), self.clock())
        return self.judge.look(self.replica, self.work(), self.clock())

    def work(self) -> Work:
        work = Work()
        for exchange in self.waiting:
            work.note(exchange, self.replica)
        return work

    def for_seconds(self, seconds: float) -> list[Finding]:
        """What was found over this time, but for nothing."""
        found = [self.look() for _ in range(int(seconds / STEP))]
        return [finding for finding in found if finding is not Finding.NOTHING]

    def hopeless(self) -> bool:
        return self.judge.is_hopeless(self.replica, self.clock())


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_an_idle_replica_does_not_stall(watched: Watched) -> None:
    assert watched.for_seconds(10 * AFTER) == []


def test_requests_without_bytes_and_steps_are_a_stall_after_their_time(watched: Watched) -> None:
    watched.begin()
    assert watched.for_seconds(AFTER) == []
    assert watched.for_seconds(2 * STEP)[0] is Finding.STALLED
    assert set(watched.for_seconds(AFTER)) == {Finding.STILL_STALLED}


def test_an_engine_that_steps_is_working(watched: Watched) -> None:
    watched.begin()
    watched.step_by = 1
    assert watched.for_seconds(10 * AFTER) == []


def test_a_replica_whose_bytes_come_is_working(watched: Watched) -> None:
    exchange = watched.begin()
    for _ in range(10):
        assert watched.for_seconds(AFTER - 1) == []
        exchange.last_byte_at = watched.clock()


def test_the_bytes_of_requests_that_have_ended_count_too(watched: Watched) -> None:
    watched.begin()
    for _ in range(10):
        assert watched.for_seconds(AFTER - 1) == []
        watched.replica.heard_at = watched.clock()


def test_an_engine_that_does_not_count_steps_may_just_be_slow(watched: Watched) -> None:
    watched.begin()
    watched.steps = None
    assert watched.for_seconds(10 * AFTER) == []


def test_failing_probes_stand_for_steps_that_are_not_known(watched: Watched) -> None:
    watched.begin()
    watched.steps = None
    watched.replica.probe_failing = True
    assert watched.for_seconds(AFTER + 1)[0] is Finding.STALLED


def test_frozen_steps_and_failing_probes_add_up(watched: Watched) -> None:
    watched.begin()
    assert watched.for_seconds(AFTER / 2) == []
    watched.steps = None
    watched.replica.probe_failing = True
    assert watched.for_seconds(AFTER / 2 + 2)[0] is Finding.STALLED


def test_a_time_in_which_nothing_was_known_does_not_count(watched: Watched) -> None:
    watched.begin()
    assert watched.for_seconds(AFTER - 5) == []
    before, watched.steps = watched.steps, None
    assert watched.for_seconds(10) == []
    watched.steps = before
    assert watched.for_seconds(AFTER - 5) == []


def test_a_time_without_requests_does_not_count(watched: Watched) -> None:
    watched.begin()
    assert watched.for_seconds(AFTER - 5) == []
    watched.waiting.clear()
    watched.look()
    watched.begin()
    assert watched.for_seconds(AFTER - 5) == []


def test_new_requests_do_not_put_a_stall_off(watched: Watched) -> None:
    found: list[Finding] = []
    for _ in range(int(AFTER) + 2):
        watched.begin()
        found += watched.for_seconds(1)
    assert Finding.STALLED in found


@pytest.mark.parametrize("sign", ["a step", "a byte", "a restart"])
def test_a_stall_is_over_when_anything_moves(watched: Watched, sign: str) -> None:
    exchange = watched.begin()
    watched.for_seconds(AFTER + 1)
    if sign == "a byte":
        exchange.last_byte_at = watched.clock() + 0.1
    else:
        watched.steps = 8.0 if sign == "a step" else 0.0

    assert watched.look() is Finding.ALIVE
    assert watched.for_seconds(AFTER - 1) == []


def test_a_stall_lasts_when_its_requests_have_gone(watched: Watched) -> None:
    watched.begin()
    watched.for_seconds(AFTER + 1)
    watched.waiting.clear()

    assert set(watched.for_seconds(10)) == {Finding.STILL_STALLED}
    watched.steps = 8.0
    assert watched.look() is Finding.ALIVE


def test_not_to_know_is_no_sign_of_life(watched: Watched) -> None:
    watched.begin()
    watched.for_seconds(AFTER + 1)
    watched.steps = None
    assert set(watched.for_seconds(10)) == {Finding.STILL_STALLED}


def test_who_is_forgotten_begins_anew(watched: Watched) -> None:
    watched.begin()
    watched.for_seconds(AFTER + 1)
    watched.judge.forget(watched.replica)
    assert watched.for_seconds(AFTER) == []


def test_zero_seconds_are_never() -> None:
    watched = Watched(after=0.0)
    watched.begin()
    assert watched.for_seconds(10 * AFTER) == []


def test_requests_are_given_up_when_the_stall_has_lasted(watched: Watched) -> None:
    watched.begin()
    watched.for_seconds(END)
    assert not watched.hopeless()
    watched.for_seconds(1)
    assert watched.hopeless()


def test_requests_of_a_replica_that_works_are_not_given_up(watched: Watched) -> None:
    watched.begin()
    watched.step_by = 1
    watched.for_seconds(10 * END)
    assert not watched.hopeless()


def test_requests_are_never_given_up_without_a_limit() -> None:
    watched = Watched(end=0.0)
    watched.begin()
    watched.for_seconds(10 * END)
    assert not watched.hopeless()
