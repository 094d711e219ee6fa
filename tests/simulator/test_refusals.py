"""Bodies against those recorded from vLLM 0.32.0."""

import json

import pytest

from replicarouter.simulator.faults import Fault
from replicarouter.simulator.refusals import CORE_DEAD, DRAINING, ERROR_EVENT, no_such_model, refusal
from replicarouter.simulator.wire import Reply

BUSY = (
    b'{"error":{"message":"The engine is currently busy and cannot accept new requests. Please try again'
    b' later or on a different instance.","type":"Service Unavailable","param":null,"code":503}}'
)
DEAD = (
    b'{"error":{"message":"EngineCore encountered an issue. See stack trace (above) for the root cause.",'
    b'"type":"InternalServerError","param":null,"code":500}}'
)


def test_busy_is_what_vllm_says_without_retry_after() -> None:
    reply = refusal(Fault(kind="status"))
    assert reply == Reply(503, BUSY)
    assert b"retry-after" not in reply.encode(now=0, keep_alive=True)


def test_a_dead_core_is_what_vllm_says() -> None:
    assert Reply(500, DEAD) == CORE_DEAD
    assert json.loads(ERROR_EVENT.removeprefix(b"data: ")) == json.loads(DEAD)
    assert ERROR_EVENT.startswith(b'data: {"error": {"message": "EngineCore')
    assert len(ERROR_EVENT) == 0xA9, "as recorded"


def test_a_draining_engine_says_that_it_did_not_run_the_request() -> None:
    assert DRAINING.status == 500
    message = json.loads(DRAINING.body)["error"]["message"]
    assert message == "cannot schedule new futures after shutdown"


@pytest.mark.parametrize(
    ("fault", "status", "retry_after"),
    [
        (Fault(kind="status", status=429), 429, "1"),
        (Fault(kind="status", status=429, retry_after=7), 429, "7"),
        (Fault(kind="status", status=503, retry_after=0.5), 503, "0.5"),
        (Fault(kind="status", status=503, reason="loading"), 503, ""),
        (Fault(kind="status", status=500), 500, ""),
        (Fault(kind="status", status=418), 418, ""),
    ],
)
def test_other_statuses_have_an_error_object(fault: Fault, status: int, retry_after: str) -> None:
    reply = refusal(fault)
    assert (reply.status, reply.retry_after) == (status, retry_after)
    assert json.loads(reply.body)["error"]["code"] == status
    assert (b"retry-after" in reply.encode(now=0, keep_alive=True)) is bool(retry_after)


def test_loading_says_so() -> None:
    assert b"Loading model" in refusal(Fault(kind="status", reason="loading")).body


def test_an_unknown_model_is_not_found() -> None:
    assert no_such_model("m").status == 404
