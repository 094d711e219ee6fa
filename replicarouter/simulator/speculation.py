"""Speculative decoding: how many of its drafted tokens a step accepts. No clock, no sockets."""

from random import Random


class Speculation:
    """Drafts `tokens` for each sequence of a step. Each is accepted with probability `acceptance` if all
    before it are, as in Leviathan et al., "Fast Inference from Transformers via Speculative Decoding"
    (2023); the same seed draws the same numbers."""

    def __init__(self, tokens: int, acceptance: float, seed: int = 0) -> None:
        self.tokens = tokens
        self._acceptance = acceptance
        self._random = Random(seed)

    def accepted(self) -> int:
        """How many of the next draft are accepted."""
        draw = self._random.random
        return next((place for place in range(self.tokens) if draw() >= self._acceptance), self.tokens)
