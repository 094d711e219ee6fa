"""Errors as OpenAI's clients, and the messages API's, read them."""

import json

import pytest

from replicarouter.errors import (
    BodyTooLarge,
    InvalidApiKey,
    InvalidRequest,
    MethodNotAllowed,
    NoReplica,
    QueueFull,
    ReplicaDisconnected,
    UpgradeRequired,
)
from replicarouter.protocol.error_body import error_body, error_event, error_headers, error_type

TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "invalid_request_error",
    408: "invalid_request_error",
    429: "rate_limit_error",
    431: "invalid_request_error",
    500: "server_error",
    502: "server_error",
    503: "server_error",
    504: "server_error",
}


@pytest.mark.parametrize("status", TYPES)
def test_the_type_follows_from_the_status(status: int) -> None:
    assert error_type(status) == TYPES[status]


def test_a_body_has_the_four_fields() -> None:
    body = json.loads(error_body(InvalidRequest("no", param="model")))
    assert body == {
        "error": {
            "message": "no",
            "type": "invalid_request_error",
            "param": "model",
            "code": "invalid_request",
        }
    }


def test_what_is_not_known_is_null() -> None:
    assert json.loads(error_body(ReplicaDisconnected("gone")))["error"]["param"] is None


def test_any_text_can_be_a_message() -> None:
    text = 'quote " backslash \\ newline \n ü 🙂'
    assert json.loads(error_body(InvalidRequest(text)))["error"]["message"] == text


def test_an_event_holds_the_body_in_one_line() -> None:
    error = ReplicaDisconnected("two\nlines")
    event = error_event(error, messages_api=False)
    assert event == b"data: " + error_body(error) + b"\n\n"
    assert event.count(b"\n") == 2


def test_the_messages_api_gets_its_own_shape() -> None:
    event = error_event(ReplicaDisconnected("gone"), messages_api=True)
    first, second, *rest = event.split(b"\n")
    assert first == b"event: error"
    assert json.loads(second.removeprefix(b"data: ")) == {
        "type": "error",
        "error": {"type": "server_error", "message": "gone"},
    }
    assert rest == [b"", b""]


@pytest.mark.parametrize(
    ("error", "headers"),
    [
        (NoReplica("later"), [("Retry-After", "1")]),
        (NoReplica("later", retry_after=7), [("Retry-After", "7")]),
        (QueueFull("later"), [("Retry-After", "1")]),
        (MethodNotAllowed("no", allow="GET, HEAD"), [("Allow", "GET, HEAD")]),
        (BodyTooLarge("no"), []),
        (InvalidApiKey("no"), [("WWW-Authenticate", "Bearer")]),
    ],
)
def test_headers_say_when_to_come_back_and_what_is_allowed(
    error: NoReplica, headers: list[tuple[str, str]]
) -> None:
    assert error_headers(error) == headers


def test_who_must_upgrade_is_told_to_what() -> None:
    assert error_headers(UpgradeRequired("no")) == [("Upgrade", "websocket"), ("Connection", "Upgrade")]
