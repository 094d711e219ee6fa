"""What a request asks for, as far as routing needs to know. The body itself is never changed."""

import json
import re
from dataclasses import dataclass
from typing import Any

import orjson

from replicarouter.errors import InvalidRequest, UnsupportedEncoding
from replicarouter.protocol.endpoints import Body, Endpoint

_FORM_MODEL = re.compile(rb'name="?model"?[^\r\n]*(?:\r\n[^\r\n]+)*\r\n\r\n([^\r\n]{1,512})\r\n')


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
        found = _FORM_MODEL.search(body)
        return InferenceRequest(endpoint, found[1].decode("utf-8", "replace") if found else None)
    if kind is Body.OPTIONAL and not body:
        return InferenceRequest(endpoint, None)
    fields = _json(body)
    if not isinstance(fields, dict):
        raise InvalidRequest("The request body must be a JSON object.")
    model = fields.get("model")
    if model is not None and not isinstance(model, str):
        raise InvalidRequest("The field 'model' must be a string.", param="model")
    return InferenceRequest(endpoint, model, fields.get("stream") is True)


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
