"""What a request asks for, as far as routing needs to know. The body itself is never changed."""

import json
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntFlag
from random import Random
from typing import Any

import orjson

from replicarouter.errors import InvalidRequest, UnsupportedEncoding
from replicarouter.protocol.endpoints import Body, Endpoint
from replicarouter.protocol.form import ModelField
from replicarouter.protocol.json_scan import BadJson, Span, scan_object
from replicarouter.protocol.json_values import ValueBuilder
from replicarouter.protocol.long_texts import lift, put_back

LARGE = 2**18
"""Bytes above which a JSON body is not parsed in one go unless it is plain: what is made of brackets takes a
thousand times as long as text, and meanwhile no stream would move."""

_LARGEST_PLAIN = 2**21
_LONGEST_PARSE = 8_000_000
_NANOSECONDS = ((b"[", 250), (b"{", 250), (b",", 8), (b"\\", 5))
_NANOSECONDS_A_QUOTE = 40
"""Bytes that a plain body may have, how long it may take to parse, and what its marks add to half a
nanosecond for each byte. Beyond, memory that is new to the process takes longer than the parser."""

_SAMPLES, _SAMPLE = 32, 256
"""How many pieces of a body are looked at for that, and the bytes of each."""

BLOCK_CHARACTERS = 512
"""Characters of a prompt in one block of its hashes: about 128 tokens of English. Smaller ones would find
little more in a cache and cost twice as much to look for."""

_FORM, _OPTIONAL = Body.FORM, Body.OPTIONAL
"""Looked up once: on the class of an enumeration that takes a while."""

NEEDS_PLAIN = "Send the request body uncompressed: its 'model' decides where it goes."

KEY_FIELDS = frozenset(
    (
        *("prompt_cache_key", "session_id", "conversation", "user", "cache_salt"),
        *("messages", "prompt", "input", "text", "input_ids", "token_ids"),
        *("tools", "functions", "documents", "system", "instructions"),
        *("image_data", "video_data", "audio_data"),
    )
)
"""Fields of a body that keys are made of: others need not be built."""

_READ = ("model", "previous_response_id", "stream")
_NO_JSON = "The request body is not valid JSON."


class Needs(IntFlag):
    """What a policy has to know of a request beside its endpoint and model."""

    NOTHING = 0
    SESSION = 1
    HEAD = 2
    BLOCKS = 4


@dataclass(slots=True, eq=False)
class InferenceRequest:
    """One request as policies see it. `model` is None when it names none; `model_at` is where its value
    stands in the body, if that is known. `response_id`: the stored response that it builds upon.

    `fields` is the body's JSON object until the keys have been read from it. The keys, as far as some
    policy needs them: `session` is the hash of the session key, `head` that of the conversation's stable
    head; `blocks` are chained hashes of the prompt's `characters`, one for each whole
    `block_characters` of them. `affinity` is how the policy that chose its replica came to it,
    `found` how many of the characters it expects to be cached there.
    """

    endpoint: Endpoint
    model: str | None
    stream: bool = False
    model_at: Span | None = None
    response_id: str | None = None
    fields: Mapping[str, Any] | None = None
    session: int | None = None
    head: int | None = None
    blocks: Sequence[int] = ()
    block_characters: int = BLOCK_CHARACTERS
    characters: int = 0
    affinity: str = "none"
    found: int = 0


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
    if not must_read and (endpoint.added or kind is _FORM):
        # As when it comes too slowly to be looked at before it goes on.
        return InferenceRequest(endpoint, None)
    if kind is _FORM:
        field = ModelField()
        field.feed(body)
        return InferenceRequest(endpoint, field.model, model_at=field.span)
    if not body and kind is _OPTIONAL:
        return InferenceRequest(endpoint, None)
    fields = _json(body)
    if not isinstance(fields, dict):
        raise InvalidRequest("The request body must be a JSON object.")
    return _asked(endpoint, fields)


def is_plain(body: bytes, chance: Random) -> bool:
    """Whether a large JSON body can be parsed in one go: judged by samples, since to count all marks would
    take longer than to parse it. They stand anywhere, so that nobody can write around them."""
    if len(body) <= LARGE:
        return True
    if len(body) > _LARGEST_PLAIN:
        return False
    stride = len(body) // _SAMPLES
    starts = (place * stride + chance.randrange(max(stride - _SAMPLE, 1)) for place in range(_SAMPLES))
    sample = b"".join([body[at : at + _SAMPLE] for at in starts])
    cost = len(sample) // 2
    for mark, price in _NANOSECONDS:
        cost += price * sample.count(mark)
    cost += _NANOSECONDS_A_QUOTE * max(0, sample.count(b'"') - sample.count(b"\\"))
    return cost * len(body) <= _LONGEST_PARSE * len(sample)


def understand_plain(endpoint: Endpoint, body: bytes, chance: Random) -> InferenceRequest | None:
    """Read what routing needs from a large JSON body in one go; None when that could take long. A long text
    is an `Opaque` in its `fields`, as in those of `understand_large`. Raises `InvalidRequest`."""
    rest, lifted = lift(body, chance)
    if not is_plain(rest, chance):
        return None
    try:
        fields = _json(rest)
    except InvalidRequest:
        if not lifted:
            raise
        return None
    if not isinstance(fields, dict):
        raise InvalidRequest("The request body must be a JSON object.")
    return _asked(endpoint, fields) if put_back(fields, lifted) else None


def early_model(start: bytes) -> str | None:
    """The model that the first bytes of a JSON object name, if they do."""
    spans: dict[str, Span] = {}
    try:
        for _ in scan_object(start, ("model",), spans):
            pass
    except BadJson:
        pass
    raw = start[slice(*spans["model"])] if "model" in spans else b""
    try:
        model = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    return model if isinstance(model, str) else None


def understand_large(
    endpoint: Endpoint, body: bytes, *, wants_keys: bool = False
) -> Generator[None, None, InferenceRequest]:
    """Read the same from a large JSON body, in steps between which others may run.

    With `wants_keys` its `fields` are those of `KEY_FIELDS`, each as `ValueBuilder` builds it; else there are
    none. What is not read is left for the engine to judge; it must be UTF-8, as RFC 8259 (section 8.1) asks
    for. Raises `InvalidRequest`.
    """
    try:
        spans = yield from scan_object(body, KEY_FIELDS.union(_READ) if wants_keys else _READ)
    except BadJson:
        raise InvalidRequest(_NO_JSON) from None
    read = {name: _scanned(body[slice(*spans[name])]) for name in _READ if name in spans}
    inference = _asked(endpoint, read)
    inference.model_at = spans.get("model")
    inference.fields = None
    if wants_keys:
        fields = {}
        for name in spans.keys() & KEY_FIELDS:
            fields[name] = yield from ValueBuilder(body).build(spans[name])
        inference.fields = fields
    return inference


def _scanned(value: bytes) -> Any:
    """A field's value; what may be large, an array or object, is not built: none of ours may be one."""
    return value if value[:1] in (b"[", b"{") else _json(value)


def _asked(endpoint: Endpoint, fields: Mapping[str, Any]) -> InferenceRequest:
    model = fields.get("model")
    if model is not None and not isinstance(model, str):
        raise InvalidRequest("The field 'model' must be a string.", param="model")
    inference = InferenceRequest(endpoint, model, fields.get("stream") is True, fields=fields)
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
