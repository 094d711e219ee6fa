"""The table of errors: status, code, whose fault, and whether another replica may have the request."""

from collections.abc import Iterator

import pytest

from replicarouter.errors import Fault, RouterError

C, R, O = Fault.CLIENT, Fault.REPLICA, Fault.ROUTER  # noqa: E741

TABLE = {
    "InternalError": (500, "internal_error", O, False),
    "ClientError": (400, "invalid_request", C, False),
    "InvalidRequest": (400, "invalid_request", C, False),
    "MalformedRequest": (400, "invalid_request", C, False),
    "InvalidApiKey": (401, "invalid_api_key", C, False),
    "ModelNotFound": (404, "model_not_found", C, False),
    "UnknownPath": (404, "unknown_path", C, False),
    "ResponseNotFound": (404, "response_not_found", C, False),
    "UnknownReplica": (404, "unknown_replica", C, False),
    "ReplicaExists": (409, "replica_exists", C, False),
    "UnknownRequest": (404, "unknown_request", C, False),
    "Cancelled": (403, "cancelled", C, False),
    "MethodNotAllowed": (405, "method_not_allowed", C, False),
    "RequestTimeout": (408, "request_timeout", C, False),
    "BodyTooLarge": (413, "body_too_large", C, False),
    "UnsupportedEncoding": (415, "unsupported_encoding", C, False),
    "ExpectationFailed": (417, "invalid_request", C, False),
    "UpgradeRequired": (426, "upgrade_required", C, False),
    "HeadersTooLarge": (431, "headers_too_large", C, False),
    "QueueFull": (429, "queue_full", O, False),
    "ReplicaError": (502, "replica_disconnected", R, False),
    "ConnectFailed": (502, "connect_failed", R, True),
    "ReplicaDisconnected": (502, "replica_disconnected", R, False),
    "StaleConnection": (502, "replica_disconnected", R, False),
    "BadReplicaResponse": (502, "bad_replica_response", R, False),
    "ResponseHeadTimeout": (504, "response_head_timeout", R, False),
    "IdleTimeout": (504, "idle_timeout", R, False),
    "SilentSession": (504, "idle_timeout", O, False),
    "TotalTimeout": (504, "total_timeout", O, False),
    "Unavailable": (503, "no_replica", O, False),
    "NoReplica": (503, "no_replica", O, False),
    "QueueTimeout": (503, "queue_timeout", O, False),
    "Overloaded": (503, "overloaded", O, False),
    "Draining": (503, "draining", O, False),
}


def below(kind: type[RouterError]) -> Iterator[type[RouterError]]:
    for one in kind.__subclasses__():
        yield one
        yield from below(one)


ERRORS = {error.__name__: error for error in below(RouterError)}


def test_the_table_names_every_error() -> None:
    assert set(ERRORS) == set(TABLE)


@pytest.mark.parametrize("name", TABLE)
def test_an_error_means_what_the_table_says(name: str) -> None:
    error = ERRORS[name]
    assert (error.status, error.code, error.fault, error.retryable) == TABLE[name]


@pytest.mark.parametrize("name", [name for name, row in TABLE.items() if row[0] in {429, 503}])
def test_who_is_turned_away_for_now_is_told_when_to_come_back(name: str) -> None:
    error = ERRORS[name]("later")
    assert error.retry_after is not None
    assert error.retry_after > 0


def test_only_what_must_end_its_connection_does() -> None:
    assert {name for name, error in ERRORS.items() if error.closes} == {"MalformedRequest", "Overloaded"}


def test_a_client_is_not_blamed_on_a_replica() -> None:
    for error in ERRORS.values():
        assert (error.fault is Fault.CLIENT) == (400 <= error.status < 500 and error.status != 429), error


def test_an_error_carries_its_message_and_its_parameter() -> None:
    error = ERRORS["ModelNotFound"]("no such model", param="model")
    assert (str(error), error.message, error.param) == ("no such model", "no such model", "model")
