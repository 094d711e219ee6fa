"""Continuous batching as vLLM does it: a waiting queue, chunked prefill, one token for each running
sequence in a step, KV blocks that grow and preempt. Time is an argument, so it runs in virtual time too."""

from collections import OrderedDict
from typing import Protocol

from replicarouter.simulator.kv_blocks import KvBlocks
from replicarouter.simulator.measures import Measures
from replicarouter.simulator.profiles import Profile

STEP_TOKEN_BUDGET = 8192
"""Tokens computed in one step at most: vLLM's `max_num_batched_tokens` when serving on large GPUs."""


class Listener(Protocol):
    """Whoever wants a sequence's tokens."""

    def token(self) -> None:
        """One more token is there."""

    def finished(self) -> None:
        """The last token has been told; no more calls follow."""


class Sequence:
    """One sequence of tokens to be generated after a prompt.

    `limit` is how many will come and `finish_reason` why it then ends ("stop" or "length").
    `cached_tokens` of the prompt need no prefill; they are 0 as long as there is no prefix cache.
    """

    __slots__ = (
        "admitted",
        "arrived",
        "blocks",
        "cached_tokens",
        "finish_reason",
        "last_token",
        "limit",
        "listener",
        "produced",
        "prompt_tokens",
        "room",
        "unfilled",
    )

    def __init__(
        self,
        *,
        prompt_tokens: int,
        limit: int,
        listener: Listener,
        finish_reason: str = "length",
    ) -> None:
        self.prompt_tokens = prompt_tokens
        self.limit = limit
        self.listener = listener
        self.finish_reason = finish_reason
        self.cached_tokens = 0
        self.produced = 0
        self.blocks = 0
        self.room = 0  # tokens that still fit into its blocks
        self.unfilled = 0  # tokens whose prefill has not been scheduled
        self.arrived = 0.0
        self.admitted = 0.0
        self.last_token = 0.0


class Scheduler:
    """Which sequences run. Alternate `begin_step` and `finish_step`; submit and abort at any time."""

    def __init__(self, profile: Profile, *, max_num_seqs: int, blocks: KvBlocks, measures: Measures) -> None:
        self.blocks = blocks
        self.measures = measures
        self._profile = profile
        self._max_num_seqs = max_num_seqs
        self._waiting: OrderedDict[Sequence, None] = OrderedDict()
        self._prefilling: list[Sequence] = []
        self._decoding: list[Sequence] = []
        self._filled: list[Sequence] = []
        self._growing: list[Sequence] = []
        self._prefill_tokens = 0
        self._step_end = 0.0

    @property
    def running(self) -> int:
        """Sequences in the batch."""
        return len(self._decoding) + len(self._prefilling)

    @property
    def waiting(self) -> int:
        """Sequences that are not yet, or no longer, in the batch."""
        return len(self._waiting)

    def submit(self, sequence: Sequence, now: float) -> None:
        """Queue a new sequence; ValueError when it could never fit into the KV cache."""
        if self.blocks.needed(sequence.prompt_tokens + sequence.limit) > self.blocks.total:
            raise ValueError("the sequence is longer than the KV cache")
        sequence.arrived = now
        self._waiting[sequence] = None

    def abort(self, sequence: Sequence) -> None:
        """Forget a sequence at once and free its blocks; for one that has ended nothing changes."""
        if sequence in self._waiting:
            del self._waiting[sequence]
        else:
            self._leave_batch(sequence)

    def begin_step(self, now: float) -> float | None:
        """Make up the next batch; its duration by the profile, or None when there is nothing to do."""
        self._grow()
        budget = max(0, STEP_TOKEN_BUDGET - len(self._decoding))
        if self._prefilling or self._waiting:
            left = self._admit(self._prefill(budget), now)
            self._prefill_tokens = budget - left
        else:
            self._prefill_tokens = 0
        running = self.running
        if not running:
            return None
        return self._profile.step_seconds(running, self._prefill_tokens)

    def finish_step(self, now: float) -> tuple[list[Sequence], list[Sequence]]:
        """End the step: the sequences that have a new token, and those of them that are complete."""
        finished: list[Sequence] = []
        growing: list[Sequence] = []
        advanced = self._decoding
        if advanced:
            self.measures.token_gap.observe(now - self._step_end, len(advanced))
        for sequence in advanced:
            sequence.produced += 1
            sequence.room -= 1
            if sequence.produced == sequence.limit:
                finished.append(sequence)
            elif not sequence.room:
                growing.append(sequence)
        self._growing = growing
        self._step_end = now
        if self._filled:
            advanced = advanced + self._first_tokens(finished, now)
            self._decoding = advanced
        if finished:
            self._decoding = [s for s in advanced if s.produced < s.limit]
            for sequence in finished:
                self._finish(sequence, now)
        self.measures.generation_tokens += len(advanced)
        if tokens := len(advanced) + self._prefill_tokens:
            self.measures.step_tokens.observe(tokens)
        return advanced, finished

    def _grow(self) -> None:
        """Give a block to each sequence that has filled its own, if need be at the latest one's cost."""
        for sequence in self._growing:
            while sequence.blocks and not self.blocks.take(1):
                self._preempt()
            if sequence.blocks:
                sequence.blocks += 1
                sequence.room += self.blocks.block_size
        self._growing = []

    def _preempt(self) -> None:
        """Send the latest sequence of the batch back to the head of the queue; it starts over."""
        sequence = (self._prefilling or self._decoding)[-1]
        sequence.last_token = self._step_end
        self._leave_batch(sequence)
        self._waiting[sequence] = None
        self._waiting.move_to_end(sequence, last=False)
        self.measures.preemptions += 1

    def _leave_batch(self, sequence: Sequence) -> None:
        # New lists: `finish_step` hands these out, and its caller may be walking through them.
        self._prefilling = [s for s in self._prefilling if s is not sequence]
        self._decoding = [s for s in self._decoding if s is not sequence]
        self._filled = [s for s in self._filled if s is not sequence]
        self.blocks.give_back(sequence.blocks)
        sequence.blocks = 0

    def _prefill(self, budget: int) -> int:
        """Schedule more of the prompts begun in earlier steps; the budget that is left."""
        for sequence in self._prefilling:
            budget -= self._fill(sequence, budget)
        return budget

    def _admit(self, budget: int, now: float) -> int:
        """Move sequences from the queue into the batch, in order, while all limits allow."""
        while self._waiting and budget > 0 and self.running < self._max_num_seqs:
            sequence = next(iter(self._waiting))
            tokens = sequence.prompt_tokens + sequence.produced
            needed = self.blocks.needed(tokens + 1)  # one more, or it would be back here at once
            if not self.blocks.take(needed):
                break
            del self._waiting[sequence]
            sequence.blocks = needed
            sequence.room = needed * self.blocks.block_size - tokens
            sequence.unfilled = tokens - sequence.cached_tokens
            if not sequence.produced:
                sequence.admitted = now
                self.measures.prefix_queries += sequence.prompt_tokens
                self.measures.prefix_hits += sequence.cached_tokens
            self._prefilling.append(sequence)
            budget -= self._fill(sequence, budget)
        return budget

    def _fill(self, sequence: Sequence, budget: int) -> int:
        tokens = min(sequence.unfilled, budget)
        sequence.unfilled -= tokens
        if not sequence.unfilled:
            self._filled.append(sequence)
        return tokens

    def _first_tokens(self, finished: list[Sequence], now: float) -> list[Sequence]:
        """The sequences whose prefill this step completed, with the token that comes of it."""
        measures = self.measures
        filled, self._filled = self._filled, []
        self._prefilling = [s for s in self._prefilling if s.unfilled]
        for sequence in filled:
            if sequence.produced:  # it had been preempted
                measures.token_gap.observe(now - sequence.last_token)
            else:
                measures.first_token.observe(now - sequence.arrived)
                measures.prompt_tokens += sequence.prompt_tokens
                measures.cached_tokens += sequence.cached_tokens
            sequence.produced += 1
            if sequence.produced == sequence.limit:
                finished.append(sequence)
        return filled

    def _finish(self, sequence: Sequence, now: float) -> None:
        self.blocks.give_back(sequence.blocks)
        sequence.blocks = 0
        self.measures.finished[sequence.finish_reason] += 1
        self.measures.request.observe(now - sequence.arrived)
        self.measures.queue.observe(sequence.admitted - sequence.arrived)
