"""An answer of the router's own, before anybody writes it."""

from collections.abc import Sequence
from dataclasses import dataclass

from replicarouter.errors import RouterError
from replicarouter.protocol.error_body import error_body, error_headers

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class LocalAnswer:
    """Status, body, its content type, and further header fields."""

    status: int
    body: bytes
    content_type: str = JSON
    headers: Sequence[tuple[str, str]] = ()


def error_answer(error: RouterError, request_id: str = "") -> LocalAnswer:
    """An error as its answer, under the request id that the client knows."""
    headers = error_headers(error)
    if request_id:
        headers.append(("X-Request-Id", request_id))
    return LocalAnswer(error.status, error_body(error), headers=headers)
