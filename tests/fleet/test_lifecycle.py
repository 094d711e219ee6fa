"""Every state with every event, every duty with every order: the moves there are, and no others."""

import pytest

from replicarouter.fleet.lifecycle import MOVES, Duty, Event, IllegalMove, Order, State, move, obey

L, R, U, E = State.LOADING, State.READY, State.UNHEALTHY, State.EJECTED
TABLE = {
    (L, Event.PASSED): R,
    (L, Event.LISTS_NOTHING): L,
    (L, Event.FAILED): L,
    (L, Event.STALLED): U,
    (R, Event.PASSED): R,
    (R, Event.LISTS_NOTHING): L,
    (R, Event.FAILED): U,
    (R, Event.EJECTED): E,
    (R, Event.STALLED): U,
    (U, Event.PASSED): R,
    (U, Event.LISTS_NOTHING): L,
    (U, Event.FAILED): U,
    (U, Event.STALLED): U,
    (E, Event.PASSED): E,
    (E, Event.LISTS_NOTHING): L,
    (E, Event.FAILED): U,
    (E, Event.RETURNED): R,
    (E, Event.STALLED): U,
}

EVERYTHING = [(state, event) for state in State for event in Event]

A, D, X = Duty.ACTIVE, Duty.DRAINING, Duty.REMOVED
DUTIES = {
    (A, Order.DRAIN): D,
    (A, Order.UNDRAIN): A,
    (A, Order.REMOVE): X,
    (D, Order.DRAIN): D,
    (D, Order.UNDRAIN): A,
    (D, Order.REMOVE): X,
    (X, Order.DRAIN): X,
    (X, Order.UNDRAIN): A,
    (X, Order.REMOVE): X,
}


@pytest.mark.parametrize(("state", "event"), [pair for pair in EVERYTHING if pair in TABLE])
def test_an_event_moves_a_state_as_the_table_says(state: State, event: Event) -> None:
    assert move(state, event) is TABLE[state, event]


@pytest.mark.parametrize(("state", "event"), [pair for pair in EVERYTHING if pair not in TABLE])
def test_another_event_is_refused_by_name(state: State, event: Event) -> None:
    with pytest.raises(IllegalMove, match=f"{event.name} in {state.name}"):
        move(state, event)


def test_every_state_can_be_left_and_reached() -> None:
    reached = {after for moves in MOVES.values() for after in moves.values()}
    assert set(MOVES) == reached


@pytest.mark.parametrize(("duty", "order"), [(duty, order) for duty in Duty for order in Order])
def test_every_order_has_a_meaning_in_every_duty(duty: Duty, order: Order) -> None:
    assert obey(duty, order) is DUTIES[duty, order]


def test_states_are_called_as_the_metrics_call_them() -> None:
    assert [state.value for state in State] == ["loading", "ready", "unhealthy", "ejected", "draining"]
