"""What one message says, as text: words as they are, all else by its JSON or by a hash of its content."""

from typing import Any

from replicarouter.affinity.pieces import Pieces
from replicarouter.protocol.json_values import Opaque

MARK = "\x1e"
"""Begins each message (ASCII's record separator): no text of its own can be taken for the next one's role
but by intent, which would win nothing."""

LONGEST_JSON = 32768
"""Bytes of an unknown kind of content; a longer one that says it holds base64 weighs like a file."""

_MOST_NESTED = 4

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


def add_item(pieces: Pieces, item: Any) -> None:
    """Append what has no role: an item of the Responses API (a call, its output), or anything else."""
    if type(item) is not dict:
        pieces.add(MARK)
        add_content(pieces, item)
        return
    kind, content = item.get("type"), item.get("content")
    pieces.add(f"{MARK}{kind}\n" if type(kind) is str else MARK)
    add_content(pieces, item.get("output") if content is None else content)
    add_more(pieces, item)


def add_more(pieces: Pieces, message: dict[str, Any]) -> None:
    """Append what a message says beside its content: the calls of tools, a name, reasoning.

    What is null or empty is left out, as clients leave out now this, now that of the same message.
    """
    for name, value in message.items():
        if value and name not in _NOT_SAID:
            if pieces.full:
                return
            pieces.add(name)
            if type(value) is str:
                pieces.add(value)
            else:
                _add_unknown(pieces, value)


def add_content(pieces: Pieces, content: Any, nested: int = 0) -> None:
    """Append a content: a text, a list of parts, nothing, or anything else."""
    if type(content) is str:
        pieces.add(content)
    elif type(content) is list:
        first = True
        for part in content:
            if pieces.full:
                return
            if first:
                first = False
            else:
                pieces.add("\n")
            if type(part) is dict and part.get("type") in _TEXT_KINDS:
                text = part.get("text")
                if type(text) is str:
                    pieces.add(text)
                    continue
            _add_part(pieces, part, nested)
    elif content is not None:
        _add_part(pieces, content, nested)


def _add_part(pieces: Pieces, part: Any, nested: int) -> None:
    if type(part) is not dict:
        if type(part) is str:
            pieces.add(part)
        else:
            _add_unknown(pieces, part)
        return
    kind, text = part.get("type"), part.get("text")
    if type(kind) is not str:
        kind = None
    if type(text) is str and (kind is None or kind in _TEXT_KINDS):
        pieces.add(text)
    elif kind in _MEDIA_KINDS or (kind is None and not _MEDIA_KINDS.isdisjoint(part)):
        pieces.add_media(pieces.dumped(_without(part, "cache_control")))
    elif nested < _MOST_NESTED and type(part.get("content")) in (str, list):
        # The result of a tool, a search or the like: text and images of its own.
        about = _without(_without(part, "cache_control"), "content")
        pieces.add_dumped(pieces.dumped(about))
        add_content(pieces, part["content"], nested + 1)
    else:
        _add_unknown(pieces, _without(part, "cache_control"))


def _without(part: dict[str, Any], name: str) -> dict[str, Any]:
    """A part without one field, such as the mark that moves on with every turn (`cache_control`)."""
    if name not in part:
        return part
    part = part.copy()
    del part[name]
    return part


def _add_unknown(pieces: Pieces, value: Any) -> None:
    if type(value) is Opaque:
        pieces.add_opaque(value)
        return
    dumped = pieces.dumped(value)
    if len(dumped) > LONGEST_JSON and b"base64" in dumped:
        pieces.add_media(dumped)
    else:
        pieces.add_dumped(dumped)
