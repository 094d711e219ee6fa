"""The part of a batch that generates one token a step for each sequence. Progress is read off one clock,
so that many steps cost no more than one."""

from heapq import heapify, heappop, heappush

from replicarouter.simulator.sequences import Sequence, StepClock

_MOST_STALE = 64
"""Outdated entries in the heap of ends beyond which it is made anew."""


class Decoding:
    """Sequences with their prefill done: the `members`, in the order in which they joined."""

    __slots__ = ("_block_size", "_ends", "_full_at", "_joined", "clock", "members")

    def __init__(self, block_size: int) -> None:
        self.clock = StepClock()
        self._block_size = block_size
        self.members: dict[Sequence, None] = {}
        self._ends: list[tuple[int, int, Sequence]] = []  # step of the last token, order, sequence
        self._joined = 0
        # How many sequences need a block for a step that begins when the clock, modulo the block size, is
        # this: all their blocks are full but for the latest token, which that step computes.
        self._full_at = [0] * block_size

    def latest(self) -> Sequence:
        """The sequence that joined last."""
        return next(reversed(self.members))

    def join(self, sequence: Sequence) -> None:
        """Let a sequence that still has tokens to come decode from the next step on."""
        clock = self.clock
        self._full_at[(clock.steps - sequence.tokens + 1) % self._block_size] += 1
        sequence.base -= clock.steps
        sequence.clock = clock
        self.members[sequence] = None
        self._await_end(sequence)

    def leave(self, sequence: Sequence) -> None:
        """Let a sequence decode no longer; what it has produced stays."""
        steps = self.clock.steps
        sequence.base += steps
        sequence.clock = None
        del self.members[sequence]
        self._full_at[(steps - sequence.tokens + 1) % self._block_size] -= 1

    def skip(self, sequence: Sequence, tokens: int) -> None:
        """Give a member so many tokens beside those of the steps; fewer than it still has to come."""
        steps, size = self.clock.steps, self._block_size
        self._full_at[(steps - sequence.tokens + 1) % size] -= 1
        sequence.base += tokens
        self._full_at[(steps - sequence.tokens + 1) % size] += 1
        self._await_end(sequence)
        if len(self._ends) > 2 * len(self.members) + _MOST_STALE:
            self._ends = [entry for entry in self._ends if not self._is_stale(entry)]
            heapify(self._ends)

    def steps_to_next_end(self) -> int:
        """Steps until the first of the sequences is complete; there must be one."""
        ends = self._ends
        while self._is_stale(ends[0]):
            heappop(ends)
        return ends[0][0] - self.clock.steps

    def demand(self, steps: int) -> int:
        """Blocks that the sequences take during the next `steps`, each when it has filled its own. None
        of them may end before."""
        size = self._block_size
        rounds, rest = divmod(steps, size)
        first = self.clock.steps % size
        last = first + rest
        full_at = self._full_at
        if last <= size:
            return rounds * len(self.members) + sum(full_at[first:last])
        return rounds * len(self.members) + sum(full_at[first:]) + sum(full_at[: last - size])

    def advance(self, steps: int) -> list[Sequence]:
        """Give each sequence `steps` tokens, at most as many as the first end is away; those that are
        complete with it leave and are returned, in their order."""
        self.clock.steps += steps
        now = self.clock.steps
        finished = []
        ends = self._ends
        while ends and ends[0][0] <= now:
            entry = heappop(ends)
            if not self._is_stale(entry):
                self.leave(entry[2])
                finished.append(entry[2])
        return finished

    def _await_end(self, sequence: Sequence) -> None:
        self._joined += 1
        heappush(self._ends, (sequence.limit - sequence.base, self._joined, sequence))

    @staticmethod
    def _is_stale(entry: tuple[int, int, Sequence]) -> bool:
        """Whether the sequence has left since, and perhaps come back."""
        end, _, sequence = entry
        return sequence.clock is None or sequence.limit - sequence.base != end
