"""Continuous batching as vLLM does it: a waiting queue, chunked prefill of what the prefix cache does not
hold, one token for each running sequence in a step, KV blocks that grow and preempt. Time is an argument,
so it runs in virtual time too."""

from bisect import bisect_right
from collections import OrderedDict
from math import inf

from replicarouter.simulator.decoding import Decoding
from replicarouter.simulator.kv_blocks import KvBlocks
from replicarouter.simulator.measures import Measures
from replicarouter.simulator.profiles import Profile
from replicarouter.simulator.sequences import Sequence
from replicarouter.simulator.speculation import Speculation

STEP_TOKEN_BUDGET = 8192
"""Tokens computed in one step at most: vLLM's `max_num_batched_tokens` when serving on large GPUs."""


class Scheduler:
    """Which sequences run. Alternate `begin_step` and `finish_step`, or `leap` between steps; submit and
    abort at any time. `started` are the sequences that got their first token in the last step that was
    finished, and `step_end` is when that was."""

    def __init__(
        self,
        profile: Profile,
        *,
        max_num_seqs: int,
        blocks: KvBlocks,
        measures: Measures,
        speculation: Speculation | None = None,
    ) -> None:
        self.blocks = blocks
        self.measures = measures
        self.started: list[Sequence] = []
        self.step_end = 0.0
        self._profile = profile
        self._seconds: dict[int, float] = {}  # of a step that only decodes, by the size of the batch
        self._max_num_seqs = max_num_seqs
        self._speculation = speculation
        self._waiting: OrderedDict[Sequence, None] = OrderedDict()
        self._prefilling: list[Sequence] = []
        self._decoding = Decoding(blocks.block_size)
        self._filled: list[Sequence] = []
        self._prefill_tokens = 0
        self._in_step = False
        self._even: int | None = None  # what `even_steps` has found, until something changes
        self._stuck = False  # the head of the queue does not fit, and nothing has been freed since

    @property
    def running(self) -> int:
        """Sequences in the batch."""
        return len(self._decoding.members) + len(self._prefilling)

    @property
    def waiting(self) -> int:
        """Sequences that are not yet, or no longer, in the batch."""
        return len(self._waiting)

    def submit(self, sequence: Sequence, now: float) -> None:
        """Queue a new sequence; ValueError when it could never fit into the KV cache."""
        if self.blocks.needed(sequence.prompt_tokens + sequence.limit) > self.blocks.total:
            raise ValueError("the sequence is longer than the KV cache")
        sequence.arrived = now
        self._even = None
        self._waiting[sequence] = None

    def abort(self, sequence: Sequence) -> None:
        """Forget a sequence at once and free its blocks; for one that has ended nothing changes."""
        self._even = None
        if sequence in self._waiting:
            del self._waiting[sequence]
            self._stuck = False
        elif sequence.clock is not None or sequence in self._prefilling:
            self._leave_batch(sequence)

    def blocks_of(self, sequence: Sequence) -> int:
        """Blocks that a sequence holds, 0 unless it is in the batch. Its latest token needs room only in
        the step that goes on from it."""
        if sequence.clock is not None:
            return self.blocks.needed(sequence.tokens - (not self._in_step))
        return self.blocks.needed(sequence.tokens) if sequence in self._prefilling else 0

    def begin_step(self, now: float) -> float | None:
        """Make up the next batch; its duration by the profile, or None when there is nothing to do."""
        self._grow()
        self._prefill_tokens = 0
        if self._prefilling or (self._waiting and not self._stuck):
            budget = max(0, STEP_TOKEN_BUDGET - len(self._decoding.members))
            self._prefill_tokens = budget - self._admit(self._prefill(budget), now)
        running = self.running
        if not running:
            return None
        self._even = None
        self._in_step = True
        seconds = self.decode_seconds(running)
        return seconds + self._prefill_tokens * self._profile.prefill_seconds_per_token

    def finish_step(self, now: float) -> tuple[list[Sequence], list[Sequence]]:
        """End the step: the sequences that have a new token, once for each, and those of them that are
        complete."""
        self._even = None
        self._in_step = False
        advanced = list(self._decoding.members)
        if advanced:
            self.measures.token_gap.observe(now - self.step_end, len(advanced))
        finished = self._decoding.advance(1)
        if self._speculation:
            advanced += self._accept_drafts(self._speculation, advanced, finished)
        self.step_end = now
        self.started = []
        if self._filled:
            advanced += self._first_tokens(finished, now)
        for sequence in finished:
            self._finish(sequence, now)
        self.measures.generation_tokens += len(advanced)
        if tokens := len(advanced) + self._prefill_tokens:
            self.measures.step_tokens.observe(tokens)
        return advanced, finished

    def even_steps(self) -> int:
        """Steps to come that only decode, all over the same batch, whatever is submitted meanwhile having
        to wait for their end: none during a step, or when something can be prefilled."""
        if self._even is not None:
            return self._even
        self._even = 0
        admissible = self._waiting and not self._stuck
        if self._in_step or self._prefilling or admissible or not self._decoding.members:
            return 0
        if self._speculation:
            return 0  # how far a step goes is drawn
        steps = self._decoding.steps_to_next_end()
        free = self.blocks.free
        if self._decoding.demand(steps) > free:
            steps = bisect_right(range(steps), free, key=self._decoding.demand) - 1
        self._even = steps
        return steps

    def leap(
        self, until: float = inf, most: int | None = None, *, beyond: bool = False
    ) -> tuple[int, list[Sequence]]:
        """Run at once those of the `even_steps` that end by `until`, `most` of them at most: how many,
        and the sequences that are complete with the last. If so told, run `beyond` that the step that has
        begun by then, unless a sequence is complete with it. Same results as one step after the other,
        the first of which begins at `step_end`; their last moves `step_end`."""
        even = self.even_steps()
        batch = len(self._decoding.members)
        seconds = self.decode_seconds(batch) if even else 0.0
        begin = self.step_end
        if begin + seconds > until and not beyond:
            return 0, []
        steps = even if most is None else min(even, most)
        if begin + steps * seconds > until:
            steps = int((until - begin) / seconds) if seconds else 0
            # The quotient may be rounded either way.
            steps += begin + (steps + 1) * seconds <= until
            steps -= begin + steps * seconds > until
            steps += beyond and steps + 1 < even and begin + steps * seconds < until
        if steps <= 0:
            return 0, []
        self._even = None
        if blocks := self._decoding.demand(steps):
            self.blocks.take(blocks)
        finished = self._decoding.advance(steps)
        self.step_end += steps * seconds
        for sequence in finished:
            self._finish(sequence, self.step_end)
        measures = self.measures
        measures.token_gap.observe(seconds, batch * steps)
        measures.step_tokens.observe(batch, steps)
        measures.generation_tokens += batch * steps
        return steps, finished

    def decode_seconds(self, batch: int) -> float:
        """The profile's duration of a step that gives each of `batch` sequences a token."""
        seconds = self._seconds.get(batch)
        if seconds is None:
            seconds = self._seconds[batch] = self._profile.decode_seconds(batch)
        return seconds

    def _grow(self) -> None:
        """Give a block to each sequence that has filled its own, if need be at the latest ones' cost."""
        while (blocks := self._decoding.demand(1)) > self.blocks.free:
            self._preempt()
        if blocks:
            self.blocks.take(blocks)

    def _preempt(self) -> None:
        """Send the latest sequence of the batch back to the head of the queue; it starts over, with what
        it finds of its own blocks."""
        sequence = self._prefilling[-1] if self._prefilling else self._decoding.latest()
        sequence.last_token = self.step_end
        sequence.preemptions += 1
        self._leave_batch(sequence)
        self._waiting[sequence] = None
        self._waiting.move_to_end(sequence, last=False)
        self.measures.preemptions += 1

    def _leave_batch(self, sequence: Sequence) -> None:
        blocks = self.blocks_of(sequence)
        if sequence.clock is not None:
            self._decoding.leave(sequence)
        else:
            self._prefilling = [s for s in self._prefilling if s is not sequence]
            self._filled = [s for s in self._filled if s is not sequence]
        self._release(sequence, blocks)

    def _release(self, sequence: Sequence, blocks: int) -> None:
        """Free the `blocks` of a sequence. What of them is computed can be found from now on; the latest
        token's part never is."""
        run = sequence.run
        computed = sequence.tokens - sequence.unfilled - 1
        if more := sequence.chain[run.end : computed // self.blocks.block_size]:
            run = self.blocks.publish(run, more)
        self.blocks.release(run, blocks - run.end)
        self._stuck = False

    def _prefill(self, budget: int) -> int:
        """Schedule more of the prompts begun in earlier steps; the budget that is left."""
        for sequence in self._prefilling:
            budget -= self._fill(sequence, budget)
        return budget

    def _admit(self, budget: int, now: float) -> int:
        """Move sequences from the queue into the batch, in order, while all limits allow; the budget
        that is left."""
        blocks = self.blocks
        while self._waiting and budget > 0:
            sequence = next(iter(self._waiting))
            tokens = sequence.tokens
            # At least the last token is computed, or there would be nothing to go on from.
            findable = sequence.chain[: (tokens - 1) // blocks.block_size]
            # With room for one more, or it would be back here at once.
            fits = blocks.fit(findable, blocks.needed(tokens + 1))
            if not fits or self.running >= self._max_num_seqs:
                self._stuck = True
                break
            del self._waiting[sequence]
            sequence.run = blocks.take_prefix(findable, blocks.needed(tokens))
            found = sequence.run.end * blocks.block_size
            sequence.unfilled = tokens - found
            if not sequence.preemptions:
                sequence.admitted = now
                sequence.cached_tokens = found
                self.measures.prefix_queries += sequence.prompt_tokens
                self.measures.prefix_hits += sequence.cached_tokens
            self._prefilling.append(sequence)
            budget -= self._fill(sequence, budget)
        return budget

    def _fill(self, sequence: Sequence, budget: int) -> int:
        """Schedule the prefill of as many tokens as the budget allows; how many. Their whole blocks can
        be found at once, as in vLLM: others of the same step read them after they are written."""
        tokens = min(sequence.unfilled, budget)
        sequence.unfilled -= tokens
        if not sequence.unfilled:
            self._filled.append(sequence)
        whole = (sequence.tokens - sequence.unfilled) // self.blocks.block_size
        if fresh := sequence.chain[sequence.run.end : whole]:
            sequence.run = self.blocks.publish(sequence.run, fresh)
        return tokens

    def _accept_drafts(
        self, speculation: Speculation, advanced: list[Sequence], finished: list[Sequence]
    ) -> list[Sequence]:
        """Verify a draft for each of the sequences that decoded in this step: what they have of it, each
        sequence once for each token. Those that are complete with it are added to `finished`."""
        measures = self.measures
        more: list[Sequence] = []
        for sequence in advanced:
            accepted = speculation.accepted()
            measures.spec_drafts += 1
            measures.spec_draft_tokens += speculation.tokens
            measures.spec_accepted_at.update(range(accepted))
            extra = min(accepted, sequence.limit - sequence.produced, self._room_beside(sequence))
            if not extra:
                continue
            filled = self.blocks.needed(sequence.tokens - 1)
            if blocks := self.blocks.needed(sequence.tokens - 1 + extra) - filled:
                self.blocks.take(blocks)
            more += [sequence] * extra
            if sequence.produced + extra < sequence.limit:
                self._decoding.skip(sequence, extra)
            else:
                self._decoding.leave(sequence)
                sequence.base += extra
                finished.append(sequence)
        return more

    def _room_beside(self, sequence: Sequence) -> int:
        """Tokens that a sequence could have more of before the cache is full."""
        blocks = self.blocks
        computed = sequence.tokens - 1
        return (blocks.needed(computed) + blocks.free) * blocks.block_size - computed

    def _first_tokens(self, finished: list[Sequence], now: float) -> list[Sequence]:
        """The sequences whose prefill this step completed, with the token that comes of it."""
        measures = self.measures
        filled, self._filled = self._filled, []
        self._prefilling = [s for s in self._prefilling if s.unfilled]
        for sequence in filled:
            if sequence.base:  # it had been preempted
                measures.token_gap.observe(now - sequence.last_token)
            else:
                sequence.first_token = now
                self.started.append(sequence)
                measures.first_token.observe(now - sequence.arrived)
                measures.prompt_tokens += sequence.prompt_tokens
                measures.cached_tokens += sequence.cached_tokens
            sequence.base += 1
            if sequence.base == sequence.limit:
                finished.append(sequence)
            else:
                self._decoding.join(sequence)
        return filled

    def _finish(self, sequence: Sequence, now: float) -> None:
        sequence.ended = now
        self._release(sequence, self.blocks.needed(sequence.tokens - 1))
        measures = self.measures
        measures.finished[sequence.finish_reason] += 1
        measures.request.observe(now - sequence.arrived)
        measures.queue.observe(sequence.admitted - sequence.arrived)
