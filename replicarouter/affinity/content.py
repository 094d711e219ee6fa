"""What one message says, as text: words as they are, all else by its JSON or by a hash of its content."""

import json
from typing import Any

import orjson
from xxhash import xxh3_64_hexdigest

from replicarouter.protocol.json_values import Opaque

MARK = "\x1e"
"""Begins each message (ASCII's record separator): no text of its own can be taken for the next one's role
but by intent, which would win nothing."""

MEDIA_CHARACTERS = 2048
"""Characters that an image, a recording, a video or a file takes whatever its size: about 512 tokens, in
the middle of what vision models make of one image (Gemma 3: 256, LLaVA-1.5: 576, Qwen2.5-VL: one for each
28 x 28 pixels, so 1,369 for a square of 1,036)."""

MOST_PIECES = 4096
"""Pieces of text that are looked at, about two for each message: thousands of tiny ones in one body would
hold up the streams of others. What stands behind them does not count."""

LONGEST_JSON = 32768
"""Characters of an unknown kind of content; a longer one that says it holds base64 weighs like a file."""

_MOST_NESTED = 4
_HEX_DIGITS = 16

_TEXT_KINDS = ("text", "input_text", "output_text")
"""A tuple, since a kind may be anything, also what has no hash."""
_MEDIA_KINDS = frozenset(
    (
        *("image_url", "input_image", "image", "image_pil", "image_embeds"),
        *("audio_url", "input_audio", "audio", "audio_embeds"),
        *("video_url", "input_video", "video"),
        *("file", "input_file", "document"),
    )
)
_NOT_SAID = frozenset(
    ("role", "content", "output", "type", "id", "call_id", "tool_call_id", "status", "cache_control")
)
"""Fields of a message that its prompt does not contain, or that are told otherwise. `cache_control`
(Anthropic) moves to the newest message with every turn, and must not change the older ones."""


def add_item(pieces: list[str], item: Any) -> None:
    """Append what has no role: an item of the Responses API (a call, its output), or anything else."""
    if type(item) is not dict:
        pieces.append(MARK)
        add_content(pieces, item)
        return
    kind, content = item.get("type"), item.get("content")
    pieces.append(f"{MARK}{kind}\n" if type(kind) is str else MARK)
    add_content(pieces, item.get("output") if content is None else content)
    add_more(pieces, item)


def add_more(pieces: list[str], message: dict[str, Any]) -> None:
    """Append what a message says beside its content: the calls of tools, a name, reasoning.

    What is null or empty is left out, as clients leave out now this, now that of the same message.
    """
    for name, value in message.items():
        if value and name not in _NOT_SAID:
            pieces.append(name)
            pieces.append(value if type(value) is str else _unknown(value))


def add_content(pieces: list[str], content: Any, nested: int = 0) -> None:
    """Append a content: a text, a list of parts, nothing, or anything else."""
    if type(content) is str:
        pieces.append(content)
    elif type(content) is list:
        before = len(pieces)
        for part in content:
            if len(pieces) > before:
                pieces.append("\n")
            if type(part) is dict and part.get("type") in _TEXT_KINDS:
                text = part.get("text")
                if type(text) is str:
                    pieces.append(text)
                    continue
            if len(pieces) > MOST_PIECES:
                return
            _add_part(pieces, part, nested)
    elif content is not None:
        _add_part(pieces, content, nested)


def media_text(value: Any) -> str:
    """What stands for an image, a recording, a video or a file: a hash of it, as often as it weighs."""
    digest = xxh3_64_hexdigest(as_json(value).encode("utf-8", "surrogatepass"))
    return digest * (MEDIA_CHARACTERS // _HEX_DIGITS)


def as_json(value: Any) -> str:
    """Canonical JSON: without spaces, fields in the order in which they were sent.

    They are not sorted: templates print arguments and schemas as they came, so that another order is
    another prompt to the engine's cache as well.
    """
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        pass  # something opaque, an integer beyond 64 bits, a lone surrogate, or deep nesting
    try:
        return json.dumps(value, separators=(",", ":"), default=_opaque_text)
    except (RecursionError, ValueError):
        return "too deep"


def _add_part(pieces: list[str], part: Any, nested: int) -> None:
    if type(part) is not dict:
        pieces.append(part if type(part) is str else _unknown(part))
        return
    kind, text = part.get("type"), part.get("text")
    if type(kind) is not str:
        kind = None
    if type(text) is str and (kind is None or kind in _TEXT_KINDS):
        pieces.append(text)
    elif kind in _MEDIA_KINDS or (kind is None and not _MEDIA_KINDS.isdisjoint(part)):
        pieces.append(media_text(_lasting(part)))
    elif nested < _MOST_NESTED and type(part.get("content")) in (str, list):
        # The result of a tool, a search or the like: text and images of its own.
        pieces.append(as_json({name: value for name, value in _lasting(part).items() if name != "content"}))
        add_content(pieces, part["content"], nested + 1)
    else:
        pieces.append(_unknown(_lasting(part)))


def _lasting(part: dict[str, Any]) -> dict[str, Any]:
    """A part without the mark that moves on with every turn."""
    if "cache_control" not in part:
        return part
    return {name: value for name, value in part.items() if name != "cache_control"}


def _unknown(value: Any) -> str:
    if type(value) is Opaque:
        return value.start + _opaque_text(value)
    text = as_json(value)
    return media_text(value) if len(text) > LONGEST_JSON and "base64" in text else text


def _opaque_text(value: Any) -> str:
    """What stands for a value that was not built, here and within others."""
    assert type(value) is Opaque
    return f"{value.digest:016x}" * (MEDIA_CHARACTERS // _HEX_DIGITS)
