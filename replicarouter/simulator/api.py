"""From the JSON of a request to what the engine is to generate: checks and arithmetic, no I/O."""

from collections.abc import Sequence
from dataclasses import dataclass

from replicarouter.simulator.fields import ApiError, Fields, invalid
from replicarouter.simulator.plans import Plan, Wish, plan_answer
from replicarouter.simulator.prompts import (
    DEFAULT_BLOCK_SIZE,
    Prompt,
    chat_text,
    ids_prompt,
    planted_word,
    text_prompt,
)
from replicarouter.simulator.tokens import seed_of, token_ids
from replicarouter.simulator.tools import choose_call

MOST_CHOICES = 128
COMPLETION_MAX_TOKENS = 16
"""What `/v1/completions` generates when `max_tokens` is absent, as OpenAI's API has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """What one request wants. `plans` are its choices in order of their index, an equal number for
    each of the `prompts`."""

    chat: bool
    prompts: tuple[Prompt, ...]
    plans: tuple[Plan, ...]
    stream: bool
    include_usage: bool
    continuous_usage: bool

    @property
    def prompt_tokens(self) -> tuple[int, ...]:
        """The length of each prompt."""
        return tuple(prompt.tokens for prompt in self.prompts)

    def prompt_of(self, choice: int) -> Prompt:
        """The prompt that the choice with this index answers."""
        return self.prompts[choice * len(self.prompts) // len(self.plans)]


class Api:
    """Reads requests for one model whose sequences hold at most `context` tokens, in blocks of
    `block_size`. `template` comes before every conversation. What cannot matter to made-up words is
    accepted without effect: `stop`, `logprobs`, sampling, and unknown fields."""

    def __init__(
        self, model: str, context: int, block_size: int = DEFAULT_BLOCK_SIZE, template: str = ""
    ) -> None:
        self.model = model
        self.context = context
        self._block_size = block_size
        self._template = template

    def chat(self, fields: Fields) -> GenerationRequest:
        """A body of `/v1/chat/completions`; ApiError when it cannot be served."""
        messages = fields.objects("messages")
        if messages is None:
            raise fields.missing("messages")
        self._check_model(fields)
        text = self._template + chat_text(messages, fields.objects("tools") or ())
        prompt = text_prompt(text, block_size=self._block_size, salt=_salt(fields))
        limit = fields.integer("max_completion_tokens")
        limit = fields.integer("max_tokens") if limit is None else limit
        wish = Wish(
            budget=self._budget(prompt.tokens, limit),
            endless=fields.flag("ignore_eos"),
            reasoning=_wants_reasoning(fields),
            call=choose_call(fields, messages),
            word=planted_word(text),
        )
        return self._request(fields, True, [(prompt, wish)])

    def completion(self, fields: Fields) -> GenerationRequest:
        """A body of `/v1/completions`; ApiError when it cannot be served."""
        prompts = _prompts(fields)
        self._check_model(fields)
        limit = fields.integer("max_tokens")
        limit = COMPLETION_MAX_TOKENS if limit is None else limit
        endless, salt = fields.flag("ignore_eos"), _salt(fields)
        asked = []
        for given in prompts:
            if isinstance(given, str):
                prompt = text_prompt(given, block_size=self._block_size, salt=salt)
            else:
                prompt = ids_prompt(given, block_size=self._block_size, salt=salt)
            asked.append((prompt, Wish(budget=self._budget(prompt.tokens, limit), endless=endless)))
        return self._request(fields, False, asked)

    def tokenize(self, fields: Fields) -> dict[str, object]:
        """The answer to a body of `/tokenize`, with a text or with messages."""
        self._check_model(fields)
        messages, prompt = fields.objects("messages"), fields.text("prompt")
        if messages is not None:
            ids = token_ids(self._template + chat_text(messages, fields.objects("tools") or ()))
        elif prompt is not None:
            ids = token_ids(prompt)
        else:
            raise fields.missing("prompt")
        return {
            "count": len(ids),
            "max_model_len": self.context,
            "tokens": ids,
            "token_strs": None,
        }

    def _request(self, fields: Fields, chat: bool, asked: Sequence[tuple[Prompt, Wish]]) -> GenerationRequest:
        temperature = fields.number("temperature")
        if temperature is not None and temperature < 0:
            raise ApiError("temperature must be 0 or more", param="temperature")
        choices = fields.integer("n")
        choices = 1 if choices is None else choices
        if not 1 <= choices * len(asked) <= MOST_CHOICES:
            raise ApiError(f"n must be at least 1 and give at most {MOST_CHOICES} choices")
        stream, options = fields.flag("stream"), fields.object("stream_options")
        if options and not stream:
            raise ApiError("stream_options need stream: true", param="stream_options")
        seed = fields.integer("seed") or 0
        return GenerationRequest(
            chat=chat,
            prompts=tuple(prompt for prompt, _ in asked),
            plans=tuple(
                plan_answer(wish, seed_of(prompt.data, seed + choice))
                for prompt, wish in asked
                for choice in range(choices)
            ),
            stream=stream,
            include_usage=options.flag("include_usage") if options else False,
            continuous_usage=options.flag("continuous_usage_stats") if options else False,
        )

    def _check_model(self, fields: Fields) -> None:
        """No model named is this one, as in vLLM."""
        if (name := fields.text("model")) and name != self.model:
            raise ApiError(
                f"model `{name}` is not served here; this engine serves {self.model}",
                status=404,
                kind="NotFoundError",
                param="model",
            )

    def _budget(self, prompt_tokens: int, limit: int | None) -> int:
        """Tokens an answer may have: the caller's limit or what the context leaves."""
        left = self.context - prompt_tokens
        if left < 1:
            raise ApiError(
                f"the prompt has {prompt_tokens} tokens; with its answer it must fit into the"
                f" {self.context} of the model's context",
                param="input_tokens",
            )
        if limit is None:
            return left
        if not 1 <= limit <= self.context:
            raise ApiError(f"max_tokens is {limit}; accepted: 1 to {self.context}", param="max_tokens")
        return min(limit, left)


def _salt(fields: Fields) -> str:
    """What keeps the cached blocks of this request apart from those of others."""
    salt = fields.text("cache_salt")
    if salt == "":
        raise ApiError("cache_salt must be a non-empty string", param="cache_salt")
    return salt or ""


def _prompts(fields: Fields) -> Sequence[str | list[int]]:
    """The prompts of a completion: a text, token ids, or a list of either."""
    prompt = fields.values.get("prompt")
    if prompt is None:
        raise fields.missing("prompt")
    many = prompt if isinstance(prompt, list) and not _token_list(prompt) else [prompt]
    if not many or not all(isinstance(one, str) or _token_list(one) for one in many):
        raise invalid("body.prompt", "must be a string, token ids, or a list of these")
    return many


def _token_list(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(type(item) is int for item in value)


def _wants_reasoning(fields: Fields) -> bool:
    """Whether the caller asked for it: `reasoning_effort`, or the chat template's own switch."""
    effort = fields.text("reasoning_effort")
    if effort is not None:
        return effort != "none"
    if switches := fields.object("chat_template_kwargs"):
        return switches.flag("enable_thinking") or switches.flag("thinking")
    return False
