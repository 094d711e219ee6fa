"""The states of a replica and the moves between them. Everything about transitions lives in this table."""

from enum import Enum


class State(Enum):
    """What the router believes of a replica. Only `READY` ones are candidates."""

    LOADING = "loading"
    READY = "ready"
    UNHEALTHY = "unhealthy"
    EJECTED = "ejected"
    DRAINING = "draining"


class Event(Enum):
    """What can change that belief."""

    PASSED = "probes passed"
    LISTS_NOTHING = "answers, but lists no model"
    FAILED = "probes failed"


MOVES: dict[State, dict[Event, State]] = {
    State.LOADING: {
        Event.PASSED: State.READY,
        Event.LISTS_NOTHING: State.LOADING,
        Event.FAILED: State.LOADING,
    },
    State.READY: {
        Event.PASSED: State.READY,
        Event.LISTS_NOTHING: State.LOADING,
        Event.FAILED: State.UNHEALTHY,
    },
    State.UNHEALTHY: {
        Event.PASSED: State.READY,
        Event.LISTS_NOTHING: State.LOADING,
        Event.FAILED: State.UNHEALTHY,
    },
}


class IllegalMove(Exception):
    """An event that has no meaning in this state: a fault of the caller."""


def move(state: State, event: Event) -> State:
    """The state after `event`; raises `IllegalMove` for a pair the table does not have."""
    try:
        return MOVES[state][event]
    except KeyError:
        raise IllegalMove(f"{event.name} in {state.name}") from None
