"""Errors as answers of the router's own."""

import json

from replicarouter.errors import MethodNotAllowed, NoReplica
from replicarouter.protocol.answer import JSON, error_answer


def test_an_error_becomes_its_status_and_document() -> None:
    answer = error_answer(NoReplica("later"), "id-1")

    assert (answer.status, answer.content_type) == (503, JSON)
    assert json.loads(answer.body)["error"]["code"] == "no_replica"
    assert dict(answer.headers) == {"Retry-After": "1", "X-Request-Id": "id-1"}


def test_without_a_request_id_there_is_no_field_for_it() -> None:
    answer = error_answer(MethodNotAllowed("no", allow="GET"))

    assert dict(answer.headers) == {"Allow": "GET"}
