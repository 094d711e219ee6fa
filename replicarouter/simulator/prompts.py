"""Prompts as tokens: what a chat template makes of a conversation, and the hashes by which the prefix cache
knows its blocks. Text is never cut into tokens: four of its characters are one, wherever they stand."""

import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from xxhash import xxh3_64_hexdigest, xxh3_64_intdigest

from replicarouter.simulator.fields import ApiError, invalid
from replicarouter.simulator.plans import Plan
from replicarouter.simulator.tokens import CHARACTERS_PER_TOKEN, count_tokens, text_of

DEFAULT_BLOCK_SIZE = 16
MEDIA_TOKENS = 256
"""What an image, or another part that is not text, takes up in the prompt."""

_PLANTED = re.compile(r"The secret word is (\w{1,64})\.")

_ROLE_TOKENS = 3
_END = "</>\n"  # one token
_TEXT_TOKEN_BYTES = 4 * CHARACTERS_PER_TOKEN  # in UTF-32, whose characters have one width


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered prompt: `data` has `token_bytes` for each token, the last token may be cut short.
    `hashes` are those of its whole blocks of `block_size` tokens, each chained to the one before and the
    first to the salt, as vLLM's are: equal hash, equal prefix."""

    data: bytes
    token_bytes: int
    block_size: int
    salt: int
    hashes: list[int]

    @property
    def tokens(self) -> int:
        """Its length."""
        return -(-len(self.data) // self.token_bytes)

    def with_reply(self, plan: Plan) -> list[int]:
        """The hashes when the answer of this plan follows. A prompt of token ids has none beyond its own:
        nobody can send ids of made-up words back."""
        if self.token_bytes != _TEXT_TOKEN_BYTES:
            return self.hashes
        block_bytes = self.block_size * self.token_bytes
        whole = len(self.hashes)
        rest = self.data[whole * block_bytes :] + _encode(_reply_text(plan))
        return self.hashes + chain(rest, block_bytes, self.hashes[-1] if whole else self.salt)


def text_prompt(text: str, *, block_size: int = DEFAULT_BLOCK_SIZE, salt: str = "") -> Prompt:
    """The prompt that is this text."""
    return _prompt(_encode(text), _TEXT_TOKEN_BYTES, block_size, salt)


def ids_prompt(ids: Sequence[int], *, block_size: int = DEFAULT_BLOCK_SIZE, salt: str = "") -> Prompt:
    """The prompt of these token ids."""
    data = array("Q", (token & 0xFFFFFFFFFFFFFFFF for token in ids)).tobytes()
    return _prompt(data, 8, block_size, salt)


def chat_text(messages: Iterable[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> str:
    """The text that a chat template makes of a conversation: the tools, each message between marks of its
    role and its end, and the mark of the assistant's role. The text of the next turn begins with this
    and the assistant's answer. ApiError for content that cannot be read.

    Everything begins with a token of its own; what is hidden, as ids of calls, is left out. An earlier
    answer's reasoning is dropped, as most templates do.
    """
    parts = [_padded(orjson.dumps(tools).decode())] if tools else []
    for message in messages:
        said = "".join(_content(message)) + _calls(message.get("tool_calls"))
        parts += _role(message.get("role")), _padded(said), _END
    parts.append(_role("assistant"))
    return "".join(parts)


def planted_word(text: str) -> str:
    """The word of the last sentence `The secret word is <word>.` in a prompt; empty without one. It is all
    that the engine understands: enough to see that a long prompt arrives whole."""
    at = text.rfind("The secret word is ")
    found = _PLANTED.match(text, at) if at >= 0 else None
    return found[1] if found else ""


def chain(data: bytes, block_bytes: int, seed: int) -> list[int]:
    """The hashes of the whole blocks of `data`, each seeded with the one before and the first with `seed`."""
    view = memoryview(data)
    hashes = []
    for end in range(block_bytes, len(data) + 1, block_bytes):
        seed = xxh3_64_intdigest(view[end - block_bytes : end], seed)
        hashes.append(seed)
    return hashes


def _prompt(data: bytes, token_bytes: int, block_size: int, salt: str) -> Prompt:
    # Texts and ids are told apart; nothing else may depend on how wide a token is.
    seed = xxh3_64_intdigest(_encode(salt), token_bytes)
    hashes = chain(data, block_size * token_bytes, seed)
    return Prompt(data, token_bytes, block_size, seed, hashes)


def _encode(text: str) -> bytes:
    return text.encode("utf-32-le", "surrogatepass")


def _padded(text: str) -> str:
    return text.ljust(count_tokens(len(text)) * CHARACTERS_PER_TOKEN, "\0")


def _role(role: object) -> str:
    size = _ROLE_TOKENS * CHARACTERS_PER_TOKEN
    return f"<{role}"[: size - 1].ljust(size, ">")


def _content(message: Mapping[str, Any]) -> Iterable[str]:
    """The texts of a message's content, what is not text standing as a digest of itself."""
    content = message.get("content")
    parts = [{"text": content}] if content is None or isinstance(content, str) else content
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise invalid("body.messages", "content must be a string or a list of parts")
    for part in parts:
        kind = part.get("type", "text")
        if kind == "text":
            text = part.get("text")
            yield text if isinstance(text, str) else ""
        else:
            yield _media(kind, part)


def _media(kind: object, part: Mapping[str, Any]) -> str:
    value = part.get(kind) if isinstance(kind, str) else None
    if not value:
        raise ApiError(f"a part of the content says it is {kind!r} and has none")
    digest = xxh3_64_hexdigest(orjson.dumps(value))
    return (digest * (MEDIA_TOKENS * CHARACTERS_PER_TOKEN // len(digest)))[
        : MEDIA_TOKENS * CHARACTERS_PER_TOKEN
    ]


def _calls(calls: object) -> str:
    """The tool calls of an earlier answer, without their ids."""
    functions = (
        [call.get("function") for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    )
    return "".join(
        _call_text(str(function.get("name")), str(function.get("arguments")))
        for function in functions
        if isinstance(function, dict)
    )


def _call_text(name: str, arguments: str) -> str:
    return f"<{name}>{arguments}"


def _reply_text(plan: Plan) -> str:
    text = text_of(plan.seed, 0, plan.reasoning) + plan.said
    return text + _call_text(plan.call.name, "".join(plan.call.pieces)) if plan.call else text
