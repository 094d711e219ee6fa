"""Errors an engine answers with when it is busy, loading, leaving or dead: vLLM 0.32.0's words, and
llama.cpp's for loading, which vLLM does by refusing connections."""

import orjson

from replicarouter.simulator.faults import Fault
from replicarouter.simulator.wire import Reply

_BUSY = (
    "The engine is currently busy and cannot accept new requests. Please try again later or on a"
    " different instance."
)
_CORE_ISSUE = "EngineCore encountered an issue. See stack trace (above) for the root cause."


def _error(status: int, message: str, kind: str) -> bytes:
    return orjson.dumps({"error": {"message": message, "type": kind, "param": None, "code": status}})


BUSY = Reply(503, _error(503, _BUSY, "Service Unavailable"))
LOADING = Reply(503, _error(503, "Loading model", "unavailable_error"))
DRAINING = Reply(500, _error(500, "cannot schedule new futures after shutdown", "InternalServerError"))
CORE_DEAD = Reply(500, _error(500, _CORE_ISSUE, "InternalServerError"))
UNHEALTHY = Reply(503)

ERROR_EVENT = (
    b'data: {"error": {"message": "%b", "type": "InternalServerError", "param": null, "code": 500}}\n\n'
) % _CORE_ISSUE.encode()
"""What a stream says last before `[DONE]` when its engine core has died."""


def refusal(fault: Fault) -> Reply:
    """The answer of a fault of kind `status`."""
    wait = f"{fault.retry_after:g}" if fault.retry_after is not None else ""
    if fault.status == 503:
        plain = BUSY if fault.reason == "busy" else LOADING
        return Reply(503, plain.body, retry_after=wait)
    if fault.status == 429:
        return Reply(429, _error(429, "Too many requests", "RateLimitError"), retry_after=wait or "1")
    kind = "InternalServerError" if fault.status >= 500 else "BadRequestError"
    return Reply(fault.status, _error(fault.status, "a scripted fault", kind), retry_after=wait)


def no_such_model(model: str) -> Reply:
    """The answer for a model that an engine does not serve."""
    message = f"model `{model}` is not served here"
    return Reply(404, _error(404, message, "NotFoundError"))
