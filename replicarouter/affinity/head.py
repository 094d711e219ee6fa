"""The stable head of a conversation as a key: the same in all its turns, and hardly in two conversations."""

from collections.abc import Mapping, Sequence
from typing import Any

from xxhash import xxh3_64_intdigest

from replicarouter.affinity.canonical import (
    add_messages,
    add_opening,
    cache_seed,
    canonical_text,
    find_prompt,
)
from replicarouter.affinity.continuations import Continuations
from replicarouter.affinity.pieces import MOST_COST, PIECE_COST, Pieces
from replicarouter.protocol.json_values import Opaque

_ANSWERS = ("assistant", "tool", "function", "model")
_INSTRUCTIONS = ("system", "developer")
_SAID = (None, "message")
"""Types of an item of the Responses API that may be the user's; others come out of the model or its tools."""


def head_of(fields: Mapping[str, Any], continuations: Continuations) -> int | None:
    """The hash (XXH3, 64 bits) of the conversation's head, or None if there is no prompt. Never raises.

    Of messages it is what stands before the first answer: tools, instructions, and what the user said
    first. So those who only share a system prompt differ, and so do single messages from one template.
    Conversations that begin with the same words, or with the same worked examples as messages, share a key;
    load bounds take care of that.

    Of a raw prompt the head cannot be seen, but the prompt of an earlier turn is remembered: after a
    restart, or between two routers, such a conversation moves once; one of messages never.
    """
    name, prompt = find_prompt(fields)
    if not name or prompt in ("", []):
        return None
    seed = cache_seed(fields)
    first = type(prompt[0]) if type(prompt) is list else None
    if type(prompt) in (str, Opaque) or first is int:
        return continuations.head(canonical_text(fields), seed)
    if first is None or first is list:
        return xxh3_64_intdigest(canonical_text(fields), seed)
    pieces = Pieces()
    add_opening(pieces, fields)
    add_messages(pieces, name, prompt[: _first_answer(prompt)])
    return xxh3_64_intdigest(pieces.encoded(), seed)


def _first_answer(messages: Sequence[Any]) -> int:
    """How many messages stand before the first answer to what a user said; a greeting is none."""
    said = False
    for index, message in enumerate(messages[: MOST_COST // PIECE_COST]):
        role = kind = None
        if type(message) is dict:
            role, kind = message.get("role"), message.get("type")
        if role in _ANSWERS or (role is None and kind not in _SAID):
            if said:
                return index
        elif role not in _INSTRUCTIONS:
            said = True
    return len(messages)
