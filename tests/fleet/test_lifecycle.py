"""Every state with every event: the moves there are, and that there are no others."""

import pytest

from replicarouter.fleet.lifecycle import MOVES, Event, IllegalMove, State, move

L, R, U = State.LOADING, State.READY, State.UNHEALTHY
TABLE = {
    (L, Event.PASSED): R,
    (L, Event.LISTS_NOTHING): L,
    (L, Event.FAILED): L,
    (R, Event.PASSED): R,
    (R, Event.LISTS_NOTHING): L,
    (R, Event.FAILED): U,
    (U, Event.PASSED): R,
    (U, Event.LISTS_NOTHING): L,
    (U, Event.FAILED): U,
}

EVERYTHING = [(state, event) for state in State for event in Event]


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


def test_states_are_called_as_the_metrics_call_them() -> None:
    assert [state.value for state in State] == ["loading", "ready", "unhealthy", "ejected", "draining"]
