"""The `usage` of an answer: its token counts as vLLM 0.32.0 reports them, with the details of the prompt
that it has with `--enable-prompt-tokens-details`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one answer, over all its prompts and choices. Of the prompts `cached` were found in the
    prefix cache, and `created` are in whole blocks that can be found from now on."""

    prompt: int
    cached: int
    created: int
    completion: int
    reasoning: int

    def as_json(self) -> dict[str, object]:
        """The object under `usage`."""
        return {
            "prompt_tokens": self.prompt,
            "total_tokens": self.prompt + self.completion,
            "completion_tokens": self.completion,
            "prompt_tokens_details": {
                "cached_tokens": self.cached,
                "created_cache_tokens": self.created,
            },
            "completion_tokens_details": {"reasoning_tokens": self.reasoning},
        }
