"""What we believe of a replica, what its operator wants of it, and how either changes: all in two tables."""

from enum import Enum


class State(Enum):
    """What the router believes of a replica (all but `DRAINING`), and what it shows of it (all).

    Only `READY` ones are candidates. `DRAINING` is no belief: it is shown while `Duty` is not `ACTIVE`.
    """

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
    EJECTED = "its requests fail"
    RETURNED = "its ejection is over"
    STALLED = "has our requests, and does nothing"


MOVES: dict[State, dict[Event, State]] = {
    State.LOADING: {
        Event.PASSED: State.READY,
        Event.LISTS_NOTHING: State.LOADING,
        Event.FAILED: State.LOADING,
        Event.STALLED: State.UNHEALTHY,
    },
    State.READY: {
        Event.PASSED: State.READY,
        Event.LISTS_NOTHING: State.LOADING,
        Event.FAILED: State.UNHEALTHY,
        Event.EJECTED: State.EJECTED,
        Event.STALLED: State.UNHEALTHY,
    },
    State.UNHEALTHY: {
        Event.PASSED: State.READY,
        Event.LISTS_NOTHING: State.LOADING,
        Event.FAILED: State.UNHEALTHY,
        Event.STALLED: State.UNHEALTHY,
    },
    # Passed probes do not end an ejection: the engine may be dead behind a server that says it is well.
    State.EJECTED: {
        Event.PASSED: State.EJECTED,
        Event.LISTS_NOTHING: State.LOADING,
        Event.FAILED: State.UNHEALTHY,
        Event.RETURNED: State.READY,
        Event.STALLED: State.UNHEALTHY,
    },
}


class Duty(Enum):
    """What its operator wants of a replica. Only `ACTIVE` ones get new requests."""

    ACTIVE = "active"
    DRAINING = "draining"
    REMOVED = "removed"


class Order(Enum):
    """What an operator can say."""

    DRAIN = "drain"
    UNDRAIN = "undrain"
    REMOVE = "remove"


DUTIES: dict[Duty, dict[Order, Duty]] = {
    Duty.ACTIVE: {Order.DRAIN: Duty.DRAINING, Order.UNDRAIN: Duty.ACTIVE, Order.REMOVE: Duty.REMOVED},
    Duty.DRAINING: {Order.DRAIN: Duty.DRAINING, Order.UNDRAIN: Duty.ACTIVE, Order.REMOVE: Duty.REMOVED},
    # Until its last request has ended, a removed replica is here and can be kept after all.
    Duty.REMOVED: {Order.DRAIN: Duty.REMOVED, Order.UNDRAIN: Duty.ACTIVE, Order.REMOVE: Duty.REMOVED},
}


class IllegalMove(Exception):
    """An event that has no meaning in this state: a fault of the caller."""


def move(state: State, event: Event) -> State:
    """The belief after `event`; raises `IllegalMove` for a pair the table does not have."""
    try:
        return MOVES[state][event]
    except KeyError:
        raise IllegalMove(f"{event.name} in {state.name}") from None


def obey(duty: Duty, order: Order) -> Duty:
    """The duty after an order; every order has a meaning in every duty."""
    return DUTIES[duty][order]
