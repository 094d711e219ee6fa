"""The canonical text of a prompt: what an engine's template would make of a body, for any API, in its order.

Tools come first, then instructions, then messages. A message that is appended only appends to the text.
"""

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from xxhash import xxh3_64_intdigest

from replicarouter.affinity.content import MARK, add_content, add_item, add_more
from replicarouter.affinity.pieces import PIECE_COST, Pieces
from replicarouter.protocol.json_values import Opaque

PROMPT_FIELDS = ("messages", "prompt", "input", "text", "input_ids", "token_ids")
"""Where a prompt may stand: chat and Anthropic's messages, completions, responses and embeddings, and
SGLang's and vLLM's own calls. The first that is there counts; a body with none has no prompt."""

_TOOLS = ("tools", "functions", "documents")
_MEDIA = ("image_data", "video_data", "audio_data")
_INSTRUCTIONS = ("system", "instructions")

_WHOLE_PROMPTS = (str, list, Opaque)
_NEXT_PROMPT = b"\xff\xff\xff\xff"
"""No token has this number."""

_PROMPT_COST = 4 * PIECE_COST
"""Cost of one of several prompts beside its pieces."""


def find_prompt(fields: Mapping[str, Any]) -> tuple[str, Any]:
    """The name and value of the field with the prompt; an empty name if there is none.

    A list of one prompt is that prompt.
    """
    for name in PROMPT_FIELDS:
        value = fields.get(name)
        if value is not None:
            if type(value) is list and len(value) == 1 and name != "messages":
                return name, value[0] if type(value[0]) in _WHOLE_PROMPTS else value
            return name, value
    return "", None


def canonical_text(fields: Mapping[str, Any]) -> bytes:
    """The text of the prompt in `fields` as UTF-8, or 4 bytes a token where it comes as token ids (as many
    as a token of text takes). Empty if there is no prompt. Never raises, whatever the values are."""
    name, prompt = find_prompt(fields)
    if not name:
        return b""
    pieces = Pieces()
    add_opening(pieces, fields)
    first = type(prompt[0]) if type(prompt) is list and prompt else None
    if first is int or first is list:
        return pieces.encoded() + _several(prompt if first is list else [prompt], pieces.left)
    add_messages(pieces, name, prompt)
    return pieces.encoded()


def cache_seed(fields: Mapping[str, Any]) -> int:
    """Where the hashes of the prompt begin: engines share nothing between requests whose `cache_salt`
    (vLLM) differs, and neither do these."""
    salt = fields.get("cache_salt")
    return xxh3_64_intdigest(salt.encode("utf-8", "surrogatepass")) if type(salt) is str and salt else 0


def add_opening(pieces: Pieces, fields: Mapping[str, Any]) -> None:
    """Append what stands before the messages: tools, instructions, and images sent beside a text."""
    get = fields.get
    for name in _TOOLS:
        value = get(name)
        if value:
            pieces.add(f"{MARK}{name}\n")
            pieces.add_dumped(pieces.dumped(value))
    for name in _INSTRUCTIONS:
        value = get(name)
        if value:
            pieces.add(f"{MARK}system\n")
            add_content(pieces, value)
    for name in _MEDIA:
        value = get(name)
        if value:
            for one in value if type(value) is list else (value,):
                if pieces.full:
                    return
                pieces.add_media(pieces.dumped(one))


def add_messages(pieces: Pieces, name: str, prompt: Any) -> None:
    """Append the messages of the field `name`, or the one text that it holds instead.

    A text as `input` (Responses API) is the message of a user, and may come back as such in the next turn.
    """
    if type(prompt) is not list:
        if name in ("messages", "input"):
            pieces.add(f"{MARK}user\n")
        add_content(pieces, prompt.start if type(prompt) is Opaque else prompt)
        return
    add = pieces.add
    for message in prompt:
        if pieces.left <= 0:
            return
        role = message.get("role") if type(message) is dict else None
        if type(role) is not str:
            add_item(pieces, message)
            continue
        add(f"{MARK}{role}\n")
        content = message.get("content")
        if type(content) is str:
            add(content)
        else:
            add_content(pieces, content)
        if len(message) > 2 or content is None:
            add_more(pieces, message)


def _several(prompts: Sequence[Any], left: int) -> bytes:
    """Lists of token ids, or whole conversations, one after the other, as long as something is `left`."""
    texts: list[bytes] = []
    for one in prompts:
        if left <= 0:
            break
        text, left = _one_of_several(one, left)
        texts.append(text)
        left -= len(text) + _PROMPT_COST
    return _NEXT_PROMPT.join(texts)


def _one_of_several(prompt: Any, left: int) -> tuple[bytes, int]:
    """Its text, and what is left of what may be spent on pieces."""
    pieces = Pieces(left)
    if type(prompt) is list and prompt and type(prompt[0]) is int:
        try:
            return array("I", prompt).tobytes(), left
        except (OverflowError, TypeError):
            return pieces.dumped(prompt), pieces.left
    add_messages(pieces, "messages", prompt)
    return pieces.encoded(), pieces.left
