"""One replica: its counts, what its engine says, who else uses it, and how it failed lately."""

from typing import Any

import pytest

from replicarouter.engines.base import EngineReading
from replicarouter.exchange import Stage
from replicarouter.fleet.ledger import OUTSTANDING, Ledger
from replicarouter.fleet.lifecycle import Duty, Event, State
from replicarouter.fleet.replica import PEAK_READINGS, PENALTY, RAMP_START, Reading, Replica
from tests.scene import a_fleet, a_replica, named


def occupy(replica: Replica, *, connecting: int = 0, sent: int = 0, streaming: int = 0) -> None:
    replica.cells[replica.row + Stage.CONNECTING] = connecting
    replica.cells[replica.row + Stage.SENT] = sent
    replica.cells[replica.row + Stage.STREAMING] = streaming
    replica.cells[replica.row + OUTSTANDING] = connecting + sent + streaming


def test_a_newcomer_knows_nothing_and_is_not_ready() -> None:
    replica = a_replica("a", weight=2.5)

    assert (replica.name, replica.weight, replica.state) == ("a", 2.5, State.LOADING)
    assert (replica.cards, replica.reading, replica.outstanding, replica.load(0.0)) == (None, None, 0, 0)


def test_counts_are_those_of_its_own_row() -> None:
    ledger = Ledger()
    one, other = a_replica("a", ledger=ledger), a_replica("b", ledger=ledger)
    occupy(other, connecting=1, sent=2, streaming=3)

    assert [other.count(stage) for stage in (Stage.CONNECTING, Stage.SENT, Stage.STREAMING)] == [1, 2, 3]
    assert (other.outstanding, other.with_engine) == (6, 5)
    assert (one.outstanding, one.with_engine) == (0, 0)


@pytest.mark.parametrize(
    ("most", "own", "outstanding", "room"),
    [
        (0, {}, 1000, True),
        (2, {}, 1, True),
        (2, {}, 2, False),
        (2, {"max_outstanding": 5}, 4, True),
        (2, {"max_outstanding": 5}, 5, False),
        (2, {"max_outstanding": 0}, 1000, True),
    ],
)
def test_its_own_limit_comes_before_that_of_all(
    most: int, own: dict[str, Any], outstanding: int, room: bool
) -> None:
    replica = a_replica("a", most=most, **own)
    occupy(replica, sent=outstanding)

    assert replica.has_room is room


def test_a_reading_is_kept_with_our_own_view_of_the_moment() -> None:
    replica = a_replica()
    occupy(replica, connecting=4, sent=2, streaming=3)
    engine = EngineReading(running=3, waiting=1)

    replica.take(engine, 7.0)
    occupy(replica)

    assert replica.reading == Reading(engine, 7.0, 5)
    assert replica.reading.unexplained == 1.0


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        (EngineReading(running=2, waiting=1), 2.0),
        (EngineReading(running=9, waiting=0), -4.0),
        (EngineReading(running=2), None),
        (EngineReading(waiting=2), None),
        (EngineReading(), None),
    ],
)
def test_what_the_engine_does_not_report_is_unexplained(
    engine: EngineReading, expected: float | None
) -> None:
    assert Reading(engine, 0.0, 5).unexplained == expected


def test_a_reading_counts_until_it_is_too_old() -> None:
    replica = a_replica()
    replica.take(EngineReading(), 10.0)

    assert replica.fresh_reading(13.0, 3.0) is replica.reading
    assert replica.fresh_reading(13.1, 3.0) is None
    assert a_replica().fresh_reading(0.0, 3.0) is None


RESTARTS = {
    "a later start": (EngineReading(start_time=100.0), EngineReading(start_time=200.0), True),
    "the same start": (EngineReading(start_time=100.0), EngineReading(start_time=100.0), False),
    "a start that wobbles": (EngineReading(start_time=100.0), EngineReading(start_time=100.4), False),
    "an earlier start": (EngineReading(start_time=200.0), EngineReading(start_time=100.0), False),
    "steps begin anew": (EngineReading(steps=50), EngineReading(steps=3), True),
    "steps go on": (EngineReading(steps=50), EngineReading(steps=51), False),
    "steps stand still": (EngineReading(steps=50), EngineReading(steps=50), False),
    "the start counts more than the steps": (
        EngineReading(start_time=100.0, steps=50),
        EngineReading(start_time=100.0, steps=3),
        False,
    ),
    "nothing to compare": (EngineReading(steps=50), EngineReading(), False),
    "nothing before": (EngineReading(), EngineReading(steps=3), False),
}


@pytest.mark.parametrize("name", RESTARTS)
def test_a_restart_is_seen(name: str) -> None:
    before, after, restarted = RESTARTS[name]
    replica = a_replica()
    replica.take(before, 1.0)
    assert replica.restarts == 0

    replica.take(after, 2.0)
    assert replica.restarts == int(restarted)


def test_what_others_send_to_the_engine_is_its_report_beyond_our_own() -> None:
    replica = a_replica()
    occupy(replica, sent=3)
    replica.take(EngineReading(running=8, waiting=2), 1.0)

    assert replica.foreign == 7.0
    assert replica.load(1.0) == 10.0


def test_our_requests_that_ended_since_still_explain_a_late_gauge() -> None:
    replica = a_replica()
    occupy(replica, streaming=10)
    replica.take(EngineReading(running=10, waiting=0), 1.0)
    occupy(replica)
    replica.take(EngineReading(running=10, waiting=0), 2.0)

    assert replica.foreign == 0


def test_our_peak_is_forgotten_after_some_readings() -> None:
    replica = a_replica()
    occupy(replica, streaming=10)
    replica.take(EngineReading(running=10, waiting=0), 1.0)
    occupy(replica)
    for moment in range(PEAK_READINGS):
        replica.take(EngineReading(running=10, waiting=0), 2.0 + moment)

    assert replica.foreign == 10


def test_an_engine_that_says_nothing_has_no_load_from_others() -> None:
    replica = a_replica()
    replica.take(EngineReading(), 1.0)

    assert replica.foreign == 0


def test_the_load_of_others_is_forgotten_when_readings_stop() -> None:
    replica = a_replica()
    replica.take(EngineReading(running=50, waiting=0), 1.0)

    assert replica.load(3600.0) == 0


def test_failures_weigh_on_it_for_a_while() -> None:
    replica = a_replica()
    occupy(replica, sent=1)
    replica.failed(100.0)
    replica.failed(105.0)

    assert replica.load(105.0) == 3
    assert replica.load(100.0 + PENALTY) == 2
    assert replica.load(105.0 + PENALTY) == 1


def test_failures_that_nobody_asks_about_do_not_pile_up() -> None:
    replica = a_replica()
    for moment in range(100_000):
        replica.failed(float(moment))

    assert len(replica.failures) < 10_000


@pytest.mark.parametrize("health", [state for state in State if state is not State.DRAINING])
@pytest.mark.parametrize("duty", Duty)
def test_its_health_is_shown_unless_it_is_to_go(health: State, duty: Duty) -> None:
    replica = a_replica()
    replica.health, replica.duty = health, duty

    assert replica.state is (health if duty is Duty.ACTIVE else State.DRAINING)


def test_its_share_is_its_weight() -> None:
    assert a_replica(weight=2.5).share(0.0) == 2.5


def test_its_share_grows_from_a_tenth_to_its_weight() -> None:
    replica = a_replica(weight=2.0)
    replica.start_slowly(100.0, 10.0)

    shares = [replica.share(100.0 + second) for second in range(13)]
    assert shares[0] == 2.0 * RAMP_START
    assert shares == sorted(shares)
    assert shares[5] == 1.0
    assert shares[10:] == [2.0, 2.0, 2.0]


def test_without_a_slow_start_its_share_is_full_at_once() -> None:
    replica = a_replica(weight=2.0)
    replica.start_slowly(100.0, 0.0)
    assert replica.share(100.0) == 2.0


def test_it_cools_until_its_time_is_over() -> None:
    replica = a_replica()
    assert not replica.cooling(0.0)
    replica.cool_until = 5.0
    assert (replica.cooling(4.9), replica.cooling(5.0)) == (True, False)


def test_on_trial_it_has_one_request_at_a_time() -> None:
    replica = a_replica()
    replica.begin_trial()
    assert replica.has_room
    occupy(replica, connecting=1)
    assert not replica.has_room
    occupy(replica)
    assert replica.has_room

    occupy(replica, sent=1)
    replica.end_trial()
    assert replica.has_room


def test_on_trial_its_own_limit_holds_too() -> None:
    replica = a_replica(most=1)
    occupy(replica, streaming=1)
    replica.begin_trial()
    assert not replica.has_room


def test_requests_from_before_a_trial_leave_room_for_it_and_not_for_more() -> None:
    replica = a_replica()
    occupy(replica, streaming=3)
    replica.begin_trial()
    assert replica.has_room
    occupy(replica, streaming=4)
    assert not replica.has_room

    occupy(replica, streaming=2)
    replica.narrow_trial(1)
    assert not replica.has_room
    replica.narrow_trial(5)
    assert not replica.has_room


def test_a_trial_is_not_avoided_for_the_failures_that_led_to_it() -> None:
    replica = a_replica()
    replica.failed(100.0)
    replica.begin_trial()
    assert replica.load(100.0) == 0


def test_whose_cost_is_not_what_is_outstanding_is_special_until_it_is_again() -> None:
    ledger = Ledger()
    failing, shared, starting, plain = (a_replica(name, ledger=ledger) for name in "abcd")

    failing.failed(1000.0)
    shared.take(EngineReading(running=8, waiting=2), 1000.0)
    starting.start_slowly(1000.0, 30.0)
    assert plain.special == {failing.row, shared.row, starting.row}

    def settled(now: float) -> set[int]:
        for replica in (failing, shared, starting, plain):
            replica.settle(now)
        return plain.special

    assert settled(1000.0 + PENALTY - 0.1) == {failing.row, shared.row, starting.row}
    assert settled(1000.0 + PENALTY) == {shared.row, starting.row}
    assert settled(1030.0) == {shared.row}
    shared.take(EngineReading(running=0, waiting=0), 1031.0)
    assert settled(1031.0) == set()


@pytest.mark.parametrize(
    ("lengths", "least"),
    [
        ((4096,), 4096),
        ((4096, 1024, 2048), 1024),
        ((None, 2048), 2048),
        ((None,), None),
        (("4096", True, -1, 0, 1.5, 10**30), None),
        ((), None),
    ],
)
def test_its_length_is_that_of_the_model_that_takes_least(
    lengths: tuple[Any, ...], least: int | None
) -> None:
    replica = a_replica()
    replica.cards = tuple({"id": str(number), "max_model_len": one} for number, one in enumerate(lengths))
    assert replica.max_length == least


def test_its_length_is_unknown_before_it_was_asked_and_where_it_is_not_told() -> None:
    replica = a_replica()
    assert replica.max_length is None
    replica.cards = ({"id": "m1"},)
    assert replica.max_length is None


def test_an_order_is_why_it_is_out_until_it_is_taken_back() -> None:
    fleet = a_fleet("a", "b")
    replica = named(fleet, "a")
    assert replica.reason == replica.why == "said so"
    fleet.drain(replica)
    assert replica.reason == "told to drain"
    fleet.tell(replica, Event.FAILED, "refuses connections")
    assert replica.reason == "told to drain"
    fleet.undrain(replica)
    assert replica.reason == "refuses connections"


@pytest.mark.parametrize(("outstanding", "told"), [(1, "1 request still runs"), (3, "3 requests still run")])
def test_a_replica_that_leaves_says_what_it_waits_for(outstanding: int, told: str) -> None:
    fleet = a_fleet("a", "b")
    replica = named(fleet, "a")
    replica.cells[replica.row + OUTSTANDING] = outstanding
    assert not fleet.remove(replica)
    assert replica.reason == f"told to be removed; {told}"
