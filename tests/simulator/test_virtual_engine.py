"""Virtual time in leaps has the results of one step after the other. All durations are sums of powers of
two, so that equal times are equal numbers."""

from dataclasses import dataclass
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicarouter.simulator.kv_blocks import KvBlocks
from replicarouter.simulator.measures import Measures
from replicarouter.simulator.profiles import Profile
from replicarouter.simulator.scheduler import Scheduler
from replicarouter.simulator.sequences import Sequence
from replicarouter.simulator.virtual_engine import VirtualEngine
from tests.properties import examples

TICK = 1 / 4096
PROFILE = Profile("dyadic", ((1, 64 * TICK), (9, 128 * TICK)), TICK)
BLOCK = 4


@dataclass(frozen=True)
class Arrival:
    """One request of a workload. Those of one conversation share a prefix; before it comes the engine is
    advanced `looks` times."""

    pause: int
    conversation: int
    prompt_blocks: int
    rest: int
    limit: int
    reply_known: bool
    looks: int

    def sequence(self) -> Sequence:
        prompt = self.prompt_blocks * BLOCK + self.rest
        whole = [self.conversation * 1000 + place for place in range((prompt + self.limit) // BLOCK)]
        return Sequence(
            prompt_tokens=prompt,
            limit=self.limit,
            hashes=whole[: self.prompt_blocks],
            final_hashes=whole if self.reply_known else None,
        )


arrivals = st.lists(
    st.builds(
        Arrival,
        pause=st.integers(0, 1500) | st.sampled_from([0, 64, 128]),
        conversation=st.integers(0, 3),
        prompt_blocks=st.integers(0, 8),
        rest=st.integers(1, BLOCK - 1),
        limit=st.integers(1, 40),
        reply_known=st.booleans(),
        looks=st.integers(0, 2),
    ),
    min_size=1,
    max_size=25,
)


def at_times(workload: list[Arrival]) -> list[tuple[float, Sequence]]:
    now, timed = 0, []
    for arrival in workload:
        now += arrival.pause
        timed.append((now * TICK, arrival.sequence()))
    return timed


class Stepwise:
    """Drives a scheduler one step at a time."""

    def __init__(self, blocks: KvBlocks, max_num_seqs: int) -> None:
        self.measures = Measures()
        self._scheduler = Scheduler(PROFILE, max_num_seqs=max_num_seqs, blocks=blocks, measures=self.measures)
        self._due: float | None = None
        self._begin_at = 0.0

    def submit(self, sequence: Sequence, now: float) -> None:
        self.run(now)
        if self._due is None and not (self._scheduler.running or self._scheduler.waiting):
            self._begin_at = now
        self._scheduler.submit(sequence, now)

    def run(self, until: float) -> None:
        while True:
            if self._due is None:
                seconds = self._scheduler.begin_step(self._begin_at) if self._begin_at < until else None
                if seconds is None:
                    return
                self._due = self._begin_at + seconds
            if self._due > until:
                return
            self._scheduler.finish_step(self._due)
            self._begin_at, self._due = self._due, None


def history(sequences: list[Sequence]) -> list[tuple[object, ...]]:
    return [
        (s.admitted, s.first_token, s.ended, s.produced, s.cached_tokens, s.preemptions) for s in sequences
    ]


def told(measures: Measures) -> dict[str, object]:
    plain = {}
    for name, value in vars(measures).items():
        plain[name] = (value.counts, value.total) if hasattr(value, "counts") else value
    return plain


@examples(300)
@given(workload=arrivals, total=st.integers(20, 60), max_num_seqs=st.integers(1, 8))
def test_leaps_have_the_results_of_single_steps(
    workload: list[Arrival], total: int, max_num_seqs: int
) -> None:
    plain_blocks, blocks = KvBlocks(total, BLOCK), KvBlocks(total, BLOCK)
    stepwise = Stepwise(plain_blocks, max_num_seqs)
    engine = VirtualEngine(PROFILE, max_num_seqs=max_num_seqs, blocks=blocks)
    expected, found = at_times(workload), at_times(workload)
    for arrival, (when, one), (_, other) in zip(workload, expected, found, strict=True):
        # Not at the time of an arrival: a step may begin at it, or wait for the arrival.
        for look in range(arrival.looks if arrival.pause >= 3 else 0, 0, -1):
            engine.advance(when - look * (arrival.pause // 3) * TICK)
        stepwise.submit(one, when)
        engine.submit(other, when)
        assert blocks.free == plain_blocks.free
        assert blocks.findable == plain_blocks.findable
    stepwise.run(1e6)
    engine.advance(1e6)
    assert history([s for _, s in found]) == history([s for _, s in expected])
    assert told(engine.measures) == told(stepwise.measures)
    assert (blocks.free, blocks.findable) == (total, plain_blocks.findable)
    assert engine.next_event_at == inf


@examples(200)
@given(workload=arrivals, total=st.integers(20, 60), max_num_seqs=st.integers(1, 8))
def test_every_event_is_told_at_the_time_it_was_announced_for(
    workload: list[Arrival], total: int, max_num_seqs: int
) -> None:
    engine = VirtualEngine(PROFILE, max_num_seqs=max_num_seqs, blocks=KvBlocks(total, BLOCK))
    coming = at_times(workload)
    sequences = [sequence for _, sequence in coming]
    started: list[Sequence] = []
    ended: list[Sequence] = []
    while coming or engine.next_event_at < inf:
        at = engine.next_event_at
        if coming and coming[0][0] <= at:
            when, sequence = coming.pop(0)
            engine.submit(sequence, when)
            continue
        began, done = engine.advance(at)
        assert {sequence.first_token for sequence in began} <= {at}
        assert {sequence.ended for sequence in done} <= {at}
        started += began
        ended += done
    assert set(started) == set(ended) == set(sequences)
    assert len(started) == len(ended) == len(sequences)
    assert [s.first_token for s in started] == sorted(s.first_token for s in sequences)


def engine_of(*, blocks: int = 100, max_num_seqs: int = 8) -> VirtualEngine:
    return VirtualEngine(PROFILE, max_num_seqs=max_num_seqs, blocks=KvBlocks(blocks, BLOCK))


def test_lone_sequence_needs_its_prefill_and_a_step_for_each_token() -> None:
    engine = engine_of()
    sequence = Sequence(prompt_tokens=10, limit=5)
    engine.submit(sequence, 1.0)
    assert engine.advance(100.0) == ([sequence], [sequence])
    assert sequence.first_token == 1.0 + (64 + 10) * TICK
    assert sequence.ended == sequence.first_token + 4 * 64 * TICK


def test_cached_prefix_shortens_the_time_to_the_first_token() -> None:
    engine = engine_of()
    chain = list(range(1, 11))
    for start in (0.0, 10.0):
        sequence = Sequence(prompt_tokens=41, limit=2, hashes=chain)
        engine.submit(sequence, start)
        engine.advance(start + 5.0)
    assert sequence.cached_tokens == 40
    assert sequence.first_token == 10.0 + (64 + 1) * TICK


def test_arrivals_at_one_time_join_the_same_step() -> None:
    engine = engine_of()
    both = [Sequence(prompt_tokens=4, limit=2) for _ in range(2)]
    for sequence in both:
        engine.submit(sequence, 3.0)
    engine.advance(100.0)
    assert both[0].first_token == both[1].first_token == 3.0 + (72 + 8) * TICK


def test_arrival_during_a_step_waits_for_its_end() -> None:
    engine = engine_of()
    first, second = Sequence(prompt_tokens=4, limit=100), Sequence(prompt_tokens=4, limit=1)
    engine.submit(first, 0.0)
    prefilled = (64 + 4) * TICK
    engine.advance(prefilled)
    engine.submit(second, prefilled + 10 * 64 * TICK + TICK)
    engine.advance(100.0)
    assert second.admitted == prefilled + 11 * 64 * TICK


def test_arrival_at_the_end_of_a_step_joins_the_next() -> None:
    engine = engine_of()
    first, second = Sequence(prompt_tokens=4, limit=100), Sequence(prompt_tokens=4, limit=1)
    engine.submit(first, 0.0)
    arrival = (64 + 4) * TICK + 10 * 64 * TICK
    engine.advance(arrival)
    engine.submit(second, arrival)
    engine.advance(100.0)
    assert second.admitted == arrival


def test_what_happened_before_a_submission_is_told_after_it() -> None:
    engine = engine_of()
    first, second = Sequence(prompt_tokens=4, limit=1), Sequence(prompt_tokens=4, limit=1)
    engine.submit(first, 0.0)
    engine.submit(second, 5.0)
    assert engine.next_event_at <= 5.0
    assert engine.advance(5.0) == ([first], [first])
    assert engine.advance(9.0) == ([second], [second])
    assert second.admitted == 5.0


def test_aborted_sequence_is_never_told() -> None:
    engine = engine_of()
    sequence = Sequence(prompt_tokens=4, limit=50)
    engine.submit(sequence, 0.0)
    engine.advance(0.5)
    engine.abort(sequence)
    assert (engine.running, engine.blocks.usage) == (0, 0)
    engine.advance(100.0)
    assert sequence.ended == 0.0
    assert engine.next_event_at == inf


def test_sequence_that_can_never_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="KV cache"):
        engine_of(blocks=2).submit(Sequence(prompt_tokens=8, limit=1), 0.0)


def test_steps_without_duration_come_to_an_end() -> None:
    engine = VirtualEngine(Profile("instant", ((1, 0.0),), 0.0), max_num_seqs=2, blocks=KvBlocks(9, BLOCK))
    sequences = [Sequence(prompt_tokens=5, limit=7) for _ in range(5)]
    for sequence in sequences:
        engine.submit(sequence, 2.0)
    assert engine.next_event_at == 2.0
    assert engine.advance(2.0) == (sequences, sequences)
