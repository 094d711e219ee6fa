"""What is learned of prompts from how they are answered: tokens in a character, and tokens computed in a
second."""

FIRST_TOKENS_PER_CHARACTER = 0.25
"""Taken before anything is learned: four characters a token, about right for English."""

FIRST_SPEED = 8000.0
"""Tokens a second before anything is learned. Published peaks lie between 15,000 and 40,000 for a 32B to
120B model on one or two H100s (calibrations of llm-d's router); too little only makes waiting for a replica
look dear."""

LEAST_CHARACTERS = 256
"""Characters of a prompt from which a ratio is learned: below, the template around it decides."""

MOST_TOKENS_PER_CHARACTER = 1.0
"""A character is a byte of UTF-8, and of those a token takes at least one; only of very long prompts not all
are counted."""

LEAST_TOKENS = 512
"""Tokens computed from which a speed is learned: below, the fixed costs of a step decide."""

_RATIO_GAIN = 0.05
_GAIN_UP, _GAIN_DOWN = 0.3, 0.02
"""How far an observation above or below moves the speed: about the 94th percentile, since most are slowed
by what else the replica does."""


def believable(characters: int, tokens: int, cached: int | None = None) -> bool:
    """Whether an engine may have counted so many tokens in a prompt of so many characters, and found so many
    of them cached."""
    if not 0 < tokens <= MOST_TOKENS_PER_CHARACTER * characters:
        return False
    return cached is None or 0 <= cached <= tokens


class Tokens:
    """Tokens in a character, from the `usage` of answers: a moving average."""

    __slots__ = ("_learned", "per_character")

    def __init__(self) -> None:
        self.per_character = FIRST_TOKENS_PER_CHARACTER
        self._learned = False

    def learn(self, characters: int, tokens: int) -> None:
        """A prompt of so many characters had so many tokens, if that is believable."""
        if characters < LEAST_CHARACTERS or not believable(characters, tokens):
            return
        ratio = tokens / characters
        self.per_character += (ratio - self.per_character) * (_RATIO_GAIN if self._learned else 1.0)
        self._learned = True


class Speed:
    """Prompt tokens that a replica computes in a second at its best, from uncached tokens and TTFT."""

    __slots__ = ("_learned", "tokens_per_second")

    def __init__(self) -> None:
        self.tokens_per_second = FIRST_SPEED
        self._learned = False

    def learn(self, tokens: float, seconds: float) -> None:
        """It took so long to compute so many tokens, from sending them to the first token of the answer."""
        if tokens < LEAST_TOKENS or seconds <= 0:
            return
        speed = tokens / seconds
        more = speed - self.tokens_per_second
        gain = (_GAIN_UP if more > 0 else _GAIN_DOWN) if self._learned else 1.0
        self.tokens_per_second += more * gain
        self._learned = True
