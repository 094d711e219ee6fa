"""What a request asks for, as far as routing needs to know. The body itself is never changed."""

import json
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from replicarouter.errors import InvalidRequest, UnsupportedEncoding
from replicarouter.protocol.endpoints import Body, Endpoint
from replicarouter.protocol.form import ModelField
from replicarouter.protocol.json_scan import BadJson, Span, scan_object

LARGE = 2**20
"""Bytes above which a JSON body is scanned in steps: parsing 30 MB of messages takes 50 to 250 ms in one
go, in which no stream would move."""

NEEDS_PLAIN = "Send the request body uncompressed: its 'model' decides where it goes."

_READ = ("model", "previous_response_id", "stream")
_NO_JSON = "The request body is not valid JSON."


@dataclass(slots=True, eq=False)
class InferenceRequest:
    """One request as policies see it. `model` is None when it names none; `model_at` is where its value
    stands in the body, if that is known. `response_id`: the stored response that it builds upon."""

    endpoint: Endpoint
    model: str | None
    stream: bool = False
    model_at: Span | None = None
    response_id: str | None = None


def understand(
    endpoint: Endpoint, kind: Body, body: bytes, *, encoded: bool, must_read: bool
) -> InferenceRequest:
    """Read what routing needs from `body`.

    `encoded`: the body is compressed, so that it cannot be looked into; that matters only when it
    must be read (`must_read`: several pools exist). Raises `InvalidRequest`, `UnsupportedEncoding`.
    """
    if encoded:
        if must_read:
            raise UnsupportedEncoding(NEEDS_PLAIN)
        return InferenceRequest(endpoint, None)
    if not must_read and (endpoint.added or kind is Body.FORM):
        # As when it comes too slowly to be looked at before it goes on.
        return InferenceRequest(endpoint, None)
    if kind is Body.FORM:
        field = ModelField()
        field.feed(body)
        return InferenceRequest(endpoint, field.model, model_at=field.span)
    if kind is Body.OPTIONAL and not body:
        return InferenceRequest(endpoint, None)
    fields = _json(body)
    if not isinstance(fields, dict):
        raise InvalidRequest("The request body must be a JSON object.")
    return _asked(endpoint, fields)


def understand_large(endpoint: Endpoint, body: bytes) -> Generator[None, None, InferenceRequest]:
    """Read the same from a large JSON body, in steps between which others may run.

    What is not read is left for the engine to judge; it must be UTF-8, as RFC 8259 (section 8.1) asks for.
    Raises `InvalidRequest`.
    """
    try:
        spans = yield from scan_object(body, _READ)
    except BadJson:
        raise InvalidRequest(_NO_JSON) from None
    inference = _asked(endpoint, {name: _scanned(body[start:end]) for name, (start, end) in spans.items()})
    inference.model_at = spans.get("model")
    return inference


def _scanned(value: bytes) -> Any:
    """A field's value; what may be large, an array or object, is not built: none of ours may be one."""
    return value if value[:1] in (b"[", b"{") else _json(value)


def _asked(endpoint: Endpoint, fields: Mapping[str, Any]) -> InferenceRequest:
    model = fields.get("model")
    if model is not None and not isinstance(model, str):
        raise InvalidRequest("The field 'model' must be a string.", param="model")
    inference = InferenceRequest(endpoint, model, fields.get("stream") is True)
    previous = fields.get("previous_response_id")
    if isinstance(previous, str):
        inference.response_id = previous
    return inference


def _json(body: bytes) -> Any:
    """Parse as engines do: where orjson is stricter (NaN, lone surrogates) Python's parser decides."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidRequest(_NO_JSON) from None
