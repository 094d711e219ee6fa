"""Sequences of tokens as the scheduler sees them: what is asked for, and how far it has come."""

from collections import abc
from typing import Protocol

from replicarouter.simulator.prefix_tree import Run


class Listener(Protocol):
    """Whoever wants a sequence's tokens."""

    def token(self) -> None:
        """One more token is there."""

    def finished(self) -> None:
        """The last token has been told; no more calls follow."""


class Nobody:
    """A listener that wants nothing, for virtual time."""

    def token(self) -> None:
        """Nothing is done."""

    def finished(self) -> None:
        """Nothing is done."""


NOBODY = Nobody()


class StepClock:
    """The steps that a batch has finished. All its decoding sequences progress by looking at it."""

    __slots__ = ("steps",)

    def __init__(self) -> None:
        self.steps = 0


class Sequence:
    """One sequence of tokens to be generated after a prompt.

    `limit` is how many will come and `finish_reason` why it then ends ("stop" or "length"). `hashes` are
    those of the prompt's whole blocks, each chained to the one before (equal hash, equal prefix); with
    none, nothing is reused. `final_hashes` are those of the whole blocks of prompt and reply and begin
    with `hashes`; they may be set at any time before the end, and let the reply be found as well.

    After its admission `cached_tokens` says how many tokens of the prompt needed no prefill. `arrived`,
    `admitted`, `first_token` and `ended` are times, in seconds of the caller's clock.
    """

    __slots__ = (
        "admitted",
        "arrived",
        "base",
        "cached_tokens",
        "clock",
        "ended",
        "final_hashes",
        "finish_reason",
        "first_token",
        "hashes",
        "last_token",
        "limit",
        "listener",
        "preemptions",
        "prompt_tokens",
        "run",
        "unfilled",
    )

    def __init__(
        self,
        *,
        prompt_tokens: int,
        limit: int,
        listener: Listener = NOBODY,
        finish_reason: str = "length",
        hashes: abc.Sequence[int] = (),
        final_hashes: abc.Sequence[int] | None = None,
    ) -> None:
        self.prompt_tokens = prompt_tokens
        self.limit = limit
        self.listener = listener
        self.finish_reason = finish_reason
        self.hashes = hashes
        self.final_hashes = final_hashes
        self.cached_tokens = 0
        self.preemptions = 0
        self.unfilled = 0  # tokens whose prefill has not been scheduled
        self.run: Run  # while in the batch: where the leading blocks end that it found or has published
        self.clock: StepClock | None = None  # set while it decodes
        self.base = 0  # tokens it has, and while it decodes, less the steps of the clock
        self.arrived = 0.0
        self.admitted = 0.0
        self.first_token = 0.0
        self.last_token = 0.0
        self.ended = 0.0

    @property
    def produced(self) -> int:
        """Tokens generated so far."""
        return self.base if self.clock is None else self.base + self.clock.steps

    @property
    def tokens(self) -> int:
        """Tokens of the prompt and those generated so far."""
        return self.prompt_tokens + self.produced

    @property
    def chain(self) -> abc.Sequence[int]:
        """The longest chain of block hashes that is known."""
        return self.final_hashes or self.hashes
