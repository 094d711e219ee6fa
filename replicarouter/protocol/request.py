"""What a request asks for, as far as routing needs to know. The body itself is never changed."""

import json
import re
from dataclasses import dataclass
from typing import Any

import orjson

from replicarouter.errors import InvalidRequest, UnsupportedEncoding
from replicarouter.protocol.endpoints import Body, Endpoint

_PART = re.compile(rb"content-disposition:([^\r\n]{0,512})", re.IGNORECASE)
_NAMED_MODEL = re.compile(rb"[;\s]name=(?:\"model\"|model)[ \t]*(?:;|\Z)", re.IGNORECASE)
_FILE = re.compile(rb'[;\s]filename\*?=(?!"")', re.IGNORECASE)
LONGEST_MODEL = 512
"""Bytes of a model's name in a form."""


@dataclass(slots=True, eq=False)
class InferenceRequest:
    """One request as policies see it. `model` is None when it names none."""

    endpoint: Endpoint
    model: str | None
    stream: bool = False


def understand(
    endpoint: Endpoint, kind: Body, body: bytes, *, encoded: bool, must_read: bool
) -> InferenceRequest:
    """Read what routing needs from `body`.

    `encoded`: the body is compressed, so that it cannot be looked into; that matters only when it
    must be read (`must_read`: several pools exist). Raises `InvalidRequest`, `UnsupportedEncoding`.
    """
    if encoded:
        if must_read:
            raise UnsupportedEncoding(
                "Send the request body uncompressed: its 'model' decides where it goes."
            )
        return InferenceRequest(endpoint, None)
    if kind is Body.FORM:
        return InferenceRequest(endpoint, _form_model(body))
    if kind is Body.OPTIONAL and not body:
        return InferenceRequest(endpoint, None)
    fields = _json(body)
    if not isinstance(fields, dict):
        raise InvalidRequest("The request body must be a JSON object.")
    model = fields.get("model")
    if model is not None and not isinstance(model, str):
        raise InvalidRequest("The field 'model' must be a string.", param="model")
    return InferenceRequest(endpoint, model, fields.get("stream") is True)


def _form_model(body: bytes) -> str | None:
    """The value of the form field called model; None without one."""
    for part in _PART.finditer(body):
        if _NAMED_MODEL.search(part[1]) and not _FILE.search(part[1]):
            start = body.find(b"\r\n\r\n", part.end(), part.end() + LONGEST_MODEL) + 4
            end = body.find(b"\r\n", start, start + LONGEST_MODEL)
            return body[start:end].decode("utf-8", "replace") if start > 3 and end > start else None
    return None


def _json(body: bytes) -> Any:
    """Parse as engines do: where orjson is stricter (NaN, lone surrogates) Python's parser decides."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidRequest("The request body is not valid JSON.") from None
