"""A `RouterError` as OpenAI's error JSON."""

import orjson

from replicarouter.errors import RouterError

_TYPES = {401: "authentication_error", 429: "rate_limit_error"}


def error_type(status: int) -> str:
    """OpenAI's `type` for a status."""
    return _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")


def error_body(error: RouterError) -> bytes:
    """The JSON document of an error answer."""
    return orjson.dumps({"error": _fields(error)})


def error_event(error: RouterError, *, messages_api: bool) -> bytes:
    """The one SSE event that ends a broken stream; `messages_api` gives it the shape of `/v1/messages`."""
    if messages_api:
        fields = {"type": error_type(error.status), "message": error.message}
        document = orjson.dumps({"type": "error", "error": fields})
        return b"event: error\ndata: " + document + b"\n\n"
    return b"data: " + error_body(error) + b"\n\n"


def error_headers(error: RouterError) -> list[tuple[str, str]]:
    """The header fields that belong to an error answer, beside its content type."""
    headers = []
    if error.retry_after is not None:
        headers.append(("Retry-After", str(error.retry_after)))
    if error.status == 401:
        headers.append(("WWW-Authenticate", "Bearer"))
    if error.allow is not None:
        headers.append(("Allow", error.allow))
    if error.upgrade is not None:
        headers += [("Upgrade", error.upgrade), ("Connection", "Upgrade")]
    return headers


def _fields(error: RouterError) -> dict[str, str | None]:
    return {
        "message": error.message,
        "type": error_type(error.status),
        "param": error.param,
        "code": error.code,
    }
