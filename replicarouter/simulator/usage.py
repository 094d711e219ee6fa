"""The `usage` of an answer: its token counts as vLLM 0.32.0 reports them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one answer, over all its prompts and choices."""

    prompt: int
    cached: int
    completion: int
    reasoning: int

    def as_json(self) -> dict[str, object]:
        """The object under `usage`."""
        return {
            "prompt_tokens": self.prompt,
            "total_tokens": self.prompt + self.completion,
            "completion_tokens": self.completion,
            "prompt_tokens_details": {"cached_tokens": self.cached, "created_cache_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": self.reasoning},
        }
