"""The scheduler in virtual time: a step is begun, time passes, the step is finished."""

import random
from dataclasses import dataclass, field
from math import nextafter

import pytest

from replicarouter.simulator.kv_blocks import KvBlocks
from replicarouter.simulator.measures import Measures
from replicarouter.simulator.profiles import Profile
from replicarouter.simulator.scheduler import STEP_TOKEN_BUDGET, Scheduler
from replicarouter.simulator.sequences import Sequence
from replicarouter.simulator.speculation import Speculation

PROFILE = Profile("test", ((1, 0.010), (11, 0.020)), 0.0001)
BLOCK = 16


@dataclass(slots=True)
class Told:
    """Writes down when its sequence had a token and when it ended."""

    tokens: list[float] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)

    def token(self) -> None:
        self.tokens.append(NOW[0])

    def finished(self) -> None:
        self.ended.append(NOW[0])


NOW = [0.0]


class Bench:
    """A scheduler with a clock that only steps move."""

    def __init__(
        self, *, max_num_seqs: int = 8, blocks: int = 1000, speculation: Speculation | None = None
    ) -> None:
        NOW[0] = 0.0
        self.measures = Measures()
        self.blocks = KvBlocks(blocks, BLOCK)
        self.scheduler = Scheduler(
            PROFILE,
            max_num_seqs=max_num_seqs,
            blocks=self.blocks,
            measures=self.measures,
            speculation=speculation,
        )

    def submit(
        self, prompt: int, limit: int, reason: str = "length", **hashes: list[int]
    ) -> tuple[Sequence, Told]:
        told = Told()
        sequence = Sequence(prompt_tokens=prompt, limit=limit, listener=told, finish_reason=reason, **hashes)
        self.scheduler.submit(sequence, NOW[0])
        return sequence, told

    def step(self) -> float | None:
        duration = self.scheduler.begin_step(NOW[0])
        if duration is None:
            return None
        NOW[0] += duration
        self.finish()
        return duration

    def finish(self) -> None:
        advanced, finished = self.scheduler.finish_step(NOW[0])
        for sequence in advanced:
            sequence.listener.token()
        for sequence in finished:
            sequence.listener.finished()

    def run(self, most: int = 10_000) -> int:
        for steps in range(most):
            if self.step() is None:
                return steps
        raise AssertionError(f"still busy after {most} steps")


def test_first_token_comes_after_prefill_and_others_a_step_apart() -> None:
    bench = Bench()
    _, told = bench.submit(prompt=100, limit=3)
    assert bench.run() == 3
    assert told.tokens == pytest.approx([0.020, 0.030, 0.040])
    assert told.ended == pytest.approx([0.040])


def test_idle_scheduler_begins_no_step() -> None:
    assert Bench().scheduler.begin_step(1.0) is None


def test_steps_get_longer_with_the_batch() -> None:
    bench = Bench()
    for _ in range(6):
        bench.submit(prompt=10, limit=5)
    bench.step()
    assert bench.step() == pytest.approx(0.015)


def test_sequences_beyond_the_limit_wait_in_order() -> None:
    bench = Bench(max_num_seqs=2)
    told = [bench.submit(prompt=10, limit=2)[1] for _ in range(5)]
    bench.step()
    assert (bench.scheduler.running, bench.scheduler.waiting) == (2, 3)
    assert [len(one.tokens) for one in told] == [1, 1, 0, 0, 0]
    bench.run()
    starts = [one.tokens[0] for one in told]
    assert starts == sorted(starts)
    assert starts[1] < starts[2] < starts[4]


def test_newcomer_joins_the_next_step() -> None:
    bench = Bench()
    _, first = bench.submit(prompt=10, limit=5)
    bench.step()
    _, second = bench.submit(prompt=10, limit=5)
    bench.step()
    assert (len(first.tokens), len(second.tokens)) == (2, 1)
    assert first.tokens[-1] == second.tokens[-1]


def test_admission_waits_for_blocks() -> None:
    bench = Bench(blocks=10)
    bench.submit(prompt=8 * BLOCK - 1, limit=2)
    _, second = bench.submit(prompt=8 * BLOCK - 1, limit=1)
    _, small = bench.submit(prompt=1, limit=1)
    bench.step()
    assert (bench.scheduler.running, bench.scheduler.waiting) == (1, 2)
    assert bench.blocks.usage == pytest.approx(0.8)
    assert not small.tokens, "the queue is served in order"
    bench.run()
    assert second.ended
    assert bench.blocks.usage == 0


def test_sequence_takes_a_block_when_it_has_filled_its_own() -> None:
    bench = Bench()
    bench.submit(prompt=BLOCK - 1, limit=BLOCK + 3)
    used = []
    while bench.step() is not None:
        used.append(bench.blocks.total - bench.blocks.free)
    # A block is taken when the step that needs it begins; the last token needs no room.
    assert used == [1, 1] + [2] * BLOCK + [0]


def test_sequence_is_admitted_with_room_for_its_next_token() -> None:
    bench = Bench(blocks=1)
    with pytest.raises(ValueError, match="KV cache"):
        bench.submit(prompt=BLOCK, limit=1)
    bench.submit(prompt=BLOCK - 1, limit=1)
    assert bench.run() == 1


def test_sequence_is_not_admitted_to_be_sent_back_at_once() -> None:
    bench = Bench(blocks=4)
    bench.submit(prompt=2 * BLOCK, limit=BLOCK)
    bench.step()
    bench.step()
    bench.submit(prompt=BLOCK, limit=BLOCK)
    bench.run()
    assert bench.measures.preemptions == 0


def test_queue_moves_on_when_a_head_that_does_not_fit_is_aborted() -> None:
    bench = Bench(blocks=10)
    bench.submit(prompt=8 * BLOCK, limit=BLOCK)
    head, _ = bench.submit(prompt=8 * BLOCK, limit=BLOCK)
    _, small = bench.submit(prompt=1, limit=2)
    bench.step()
    bench.step()
    bench.scheduler.abort(head)
    bench.step()
    assert len(small.tokens) == 1


def test_long_prompt_takes_several_steps_while_others_go_on() -> None:
    bench = Bench(blocks=2000)
    _, early = bench.submit(prompt=10, limit=50)
    bench.step()
    _, late = bench.submit(prompt=2 * STEP_TOKEN_BUDGET, limit=1)
    durations = [bench.step() for _ in range(3)]
    assert len(early.tokens) == 4
    assert len(late.tokens) == 1, "its prefill needs a third step beside a decoding sequence"
    assert durations[0] == pytest.approx(0.011 + (STEP_TOKEN_BUDGET - 1) * 0.0001)
    assert durations[2] == pytest.approx(0.011 + 2 * 0.0001)


def test_latest_sequence_is_preempted_when_blocks_run_out() -> None:
    bench = Bench(blocks=4)
    _, first = bench.submit(prompt=BLOCK - 1, limit=2 * BLOCK)
    _, second = bench.submit(prompt=BLOCK - 1, limit=2 * BLOCK)
    bench.run()
    assert bench.measures.preemptions == 1
    assert (len(first.tokens), len(second.tokens)) == (2 * BLOCK, 2 * BLOCK)
    assert first.ended < second.ended
    assert bench.measures.first_token.count == 2
    assert bench.measures.token_gap.count == 2 * (2 * BLOCK - 1)
    assert bench.measures.token_gap.total == pytest.approx(
        sum(told.tokens[-1] - told.tokens[0] for told in (first, second))
    )
    assert bench.blocks.usage == 0


def test_preempted_sequence_goes_to_the_head_of_the_queue() -> None:
    bench = Bench(blocks=4, max_num_seqs=2)
    bench.submit(prompt=BLOCK, limit=2 * BLOCK)
    _, second = bench.submit(prompt=BLOCK, limit=2 * BLOCK)
    _, third = bench.submit(prompt=BLOCK // 2, limit=2)
    while not bench.measures.preemptions:
        bench.step()
    before = len(second.tokens)
    assert bench.scheduler.waiting == 2
    bench.run()
    assert second.tokens[before] <= third.tokens[0]


def test_aborted_running_sequence_frees_its_place_and_blocks_at_once() -> None:
    bench = Bench(max_num_seqs=1)
    running, told = bench.submit(prompt=100, limit=50)
    bench.submit(prompt=10, limit=1)
    bench.step()
    bench.scheduler.abort(running)
    assert (bench.scheduler.running, bench.scheduler.waiting) == (0, 1)
    assert bench.blocks.usage == 0
    bench.run()
    assert len(told.tokens) == 1
    assert not told.ended
    assert sum(bench.measures.finished.values()) == 1, "vLLM does not count aborted ones"


@pytest.mark.parametrize("steps", [0, 3])
def test_abort_within_a_step_takes_the_token_back(steps: int) -> None:
    bench = Bench()
    sequence, told = bench.submit(prompt=10, limit=50)
    for _ in range(steps):
        bench.step()
    bench.scheduler.begin_step(NOW[0])
    bench.scheduler.abort(sequence)
    bench.finish()
    assert len(told.tokens) == steps
    assert bench.step() is None


def test_aborted_waiting_sequence_leaves_the_queue() -> None:
    bench = Bench(max_num_seqs=1)
    bench.submit(prompt=10, limit=2)
    waiting, told = bench.submit(prompt=10, limit=2)
    bench.step()
    bench.scheduler.abort(waiting)
    assert bench.scheduler.waiting == 0
    bench.run()
    assert not told.tokens


def test_aborting_what_has_ended_changes_nothing() -> None:
    bench = Bench()
    sequence, _ = bench.submit(prompt=10, limit=1)
    bench.run()
    bench.scheduler.abort(sequence)
    assert bench.blocks.usage == 0
    assert bench.measures.finished["length"] == 1


def test_sequence_larger_than_the_cache_is_refused() -> None:
    with pytest.raises(ValueError, match="KV cache"):
        Bench(blocks=4).submit(prompt=3 * BLOCK, limit=BLOCK + 1)


def test_measures_tell_what_happened() -> None:
    bench = Bench(max_num_seqs=1)
    bench.submit(prompt=100, limit=3, reason="stop")
    bench.submit(prompt=50, limit=2)
    bench.run()
    measures = bench.measures
    assert (measures.prompt_tokens, measures.cached_tokens) == (150, 0)
    assert (measures.prefix_queries, measures.prefix_hits) == (150, 0)
    assert measures.generation_tokens == 5
    assert (measures.finished["stop"], measures.finished["length"]) == (1, 1)
    assert measures.step_tokens.count == 5
    assert measures.step_tokens.total == 155
    assert measures.first_token.total == pytest.approx(0.020 + 0.040 + 0.015)
    assert measures.token_gap.total == pytest.approx(3 * 0.010)
    assert measures.queue.total == pytest.approx(0.040)
    assert measures.request.total == pytest.approx(0.040 + 0.065)


@pytest.mark.parametrize("seed", range(12))
def test_blocks_and_tokens_add_up_whatever_comes_and_goes(seed: int) -> None:
    chance = random.Random(seed)
    bench = Bench(max_num_seqs=6, blocks=40)
    living: dict[Sequence, Told] = {}
    for _ in range(400):
        if chance.random() < 0.3:
            prompt, limit = chance.randint(1, 300), chance.randint(1, 300)
            sequence, told = bench.submit(prompt, limit)
            living[sequence] = told
        if living and chance.random() < 0.05:
            gone = chance.choice(list(living))
            bench.scheduler.abort(gone)
            del living[gone]
        bench.step()
        held = sum(map(bench.scheduler.blocks_of, living))
        assert held + bench.blocks.free == bench.blocks.total
        assert bench.scheduler.running <= 6
    bench.run(100_000)
    assert bench.blocks.free == bench.blocks.total
    for sequence, told in living.items():
        assert len(told.tokens) == sequence.limit == sequence.produced
        assert len(told.ended) == 1
    assert bench.measures.preemptions > 0


# The prefix cache


def numbered(conversation: int, blocks: int) -> list[int]:
    """The block hashes of a conversation."""
    return [conversation * 1000 + place for place in range(blocks)]


def test_prefix_that_was_computed_before_needs_no_prefill() -> None:
    bench = Bench()
    bench.submit(prompt=100, limit=1, hashes=numbered(1, 6))
    cold = bench.step()
    warm, _ = bench.submit(prompt=100, limit=1, hashes=numbered(1, 6))
    assert cold == pytest.approx(0.010 + 0.01)
    assert bench.step() == pytest.approx(0.010 + 0.0004)
    assert warm.cached_tokens == 96
    assert (bench.measures.prefix_queries, bench.measures.prefix_hits) == (200, 96)
    assert (bench.measures.prompt_tokens, bench.measures.cached_tokens) == (200, 96)


def test_last_token_of_a_prompt_is_always_computed() -> None:
    bench = Bench()
    for _ in range(2):
        sequence, _ = bench.submit(prompt=4 * BLOCK, limit=1, hashes=numbered(1, 4))
        bench.run()
    assert sequence.cached_tokens == 3 * BLOCK


def test_sequences_of_one_step_share_their_prefix() -> None:
    bench = Bench()
    (first, _), (second, _) = (
        bench.submit(prompt=5 * BLOCK, limit=3, hashes=numbered(1, 5)) for _ in range(2)
    )
    assert bench.step() == pytest.approx(0.011 + 6 * BLOCK * 0.0001)
    assert (first.cached_tokens, second.cached_tokens) == (0, 4 * BLOCK)
    assert bench.blocks.total - bench.blocks.free == 5, "the copy of the last block is given back"


def test_prompt_is_found_as_far_as_its_prefill_has_come() -> None:
    bench = Bench(blocks=3000)
    blocks = 2 * STEP_TOKEN_BUDGET // BLOCK
    bench.submit(prompt=blocks * BLOCK, limit=1, hashes=numbered(1, blocks))
    bench.step()
    second, _ = bench.submit(prompt=blocks * BLOCK, limit=1, hashes=numbered(1, blocks))
    bench.scheduler.begin_step(NOW[0])
    bench.finish()
    bench.run()
    assert second.cached_tokens == (blocks - 1) * BLOCK, "it was admitted when the first was through"


def test_reply_is_found_in_the_next_turn() -> None:
    bench = Bench()
    bench.submit(prompt=40, limit=41, hashes=numbered(1, 2), final_hashes=numbered(1, 5))
    bench.run()
    turn, _ = bench.submit(prompt=200, limit=1, hashes=numbered(1, 12))
    bench.run()
    assert turn.cached_tokens == 80


def test_token_that_was_generated_last_is_not_in_the_cache() -> None:
    """Its keys and values would be computed by the step that goes on from it."""
    bench = Bench()
    bench.submit(prompt=40, limit=40, hashes=numbered(1, 2), final_hashes=numbered(1, 5))
    bench.run()
    assert bench.blocks.find(numbered(1, 5)) == 4


def test_usage_is_what_running_sequences_hold() -> None:
    bench = Bench(blocks=20)
    bench.submit(prompt=8 * BLOCK, limit=2, hashes=numbered(1, 8))
    bench.step()
    assert bench.blocks.usage == pytest.approx(8 / 20)
    bench.run()
    assert bench.blocks.usage == 0
    assert bench.blocks.findable == 8


def test_preempted_sequence_finds_its_own_blocks_again() -> None:
    bench = Bench(blocks=8, max_num_seqs=2)
    (first, _), (second, _) = (
        bench.submit(
            prompt=2 * BLOCK, limit=4 * BLOCK, hashes=numbered(one, 2), final_hashes=numbered(one, 6)
        )
        for one in (1, 2)
    )
    while not bench.measures.preemptions:
        bench.step()
    assert (first.preemptions, second.preemptions) == (0, 1)
    queries, hits = bench.measures.prefix_queries, bench.measures.prefix_hits
    bench.run()
    assert second.produced == 4 * BLOCK
    assert second.cached_tokens == 0, "what it found at its first admission counts"
    assert (bench.measures.prefix_queries, bench.measures.prefix_hits) == (queries, hits) == (64, 0)
    assert bench.measures.step_tokens.total < 2 * 2 * BLOCK + 2 * 4 * BLOCK + 3 * BLOCK, (
        "most of it was not computed again"
    )


def test_aborted_sequence_leaves_what_it_computed() -> None:
    bench = Bench()
    gone, _ = bench.submit(prompt=40, limit=50, hashes=numbered(1, 2), final_hashes=numbered(1, 5))
    for _ in range(26):
        bench.step()
    bench.scheduler.abort(gone)
    assert bench.blocks.usage == 0
    assert bench.blocks.find(numbered(1, 5)) == 4


def test_sequences_are_admitted_as_long_as_their_shared_prefix_leaves_room() -> None:
    bench = Bench(blocks=10)
    prompt, chain = 7 * BLOCK + 1, numbered(1, 7)
    (first, _), (second, _) = (bench.submit(prompt=prompt, limit=5, hashes=chain) for _ in range(2))
    bench.step()
    assert (bench.scheduler.running, bench.scheduler.waiting) == (2, 0)
    assert (first.cached_tokens, second.cached_tokens) == (0, 7 * BLOCK)


# Leaps


def test_leap_ends_with_the_first_sequence_that_does() -> None:
    bench = Bench()
    short, _ = bench.submit(prompt=10, limit=5)
    long, _ = bench.submit(prompt=10, limit=50)
    bench.step()
    assert bench.scheduler.leap() == (4, [short])
    assert (short.produced, long.produced) == (5, 5)
    assert bench.scheduler.step_end == pytest.approx(NOW[0] + 4 * 0.011)
    assert short.ended == bench.scheduler.step_end


@pytest.mark.parametrize(("until", "steps"), [(0.0095, 0), (0.0101, 1), (0.0299, 2), (0.031, 3)])
def test_leap_takes_no_step_that_would_end_later(until: float, steps: int) -> None:
    bench = Bench()
    bench.submit(prompt=10, limit=50)
    bench.step()
    assert bench.scheduler.leap(NOW[0] + until)[0] == steps
    assert bench.scheduler.leap(most=2)[0] == 2


def test_nothing_is_leapt_over_that_could_change_the_batch() -> None:
    bench = Bench()
    assert bench.scheduler.leap() == (0, [])
    bench.submit(prompt=10, limit=50)
    assert bench.scheduler.leap() == (0, []), "there is a prompt to be computed"
    bench.step()
    bench.scheduler.begin_step(NOW[0])
    assert bench.scheduler.leap() == (0, []), "a step is under way"
    bench.finish()
    bench.submit(prompt=10, limit=50)
    assert bench.scheduler.leap() == (0, []), "a sequence can be admitted"


def test_leap_goes_on_while_the_queue_is_stuck() -> None:
    bench = Bench(max_num_seqs=1)
    bench.submit(prompt=10, limit=50)
    bench.submit(prompt=10, limit=50)
    bench.step()
    bench.step()
    assert bench.scheduler.leap()[0] == 48


def test_leap_stops_before_blocks_run_out() -> None:
    bench = Bench(blocks=4)
    for _ in range(2):
        bench.submit(prompt=BLOCK - 1, limit=2 * BLOCK)
    bench.step()
    assert bench.scheduler.leap() == (1 + BLOCK, [])
    assert (bench.blocks.free, bench.measures.preemptions) == (0, 0)
    bench.scheduler.begin_step(bench.scheduler.step_end)
    assert bench.measures.preemptions == 1


@pytest.mark.parametrize("batch", [1, 2, 3, 7])
def test_leap_up_to_the_end_of_a_step_takes_that_step_in_spite_of_rounding(batch: int) -> None:
    for steps in range(1, 150):
        for missing in (0, 1):
            bench = Bench()
            for _ in range(batch):
                bench.submit(prompt=10, limit=200)
            bench.step()
            end = bench.scheduler.step_end + steps * bench.scheduler.decode_seconds(batch)
            assert bench.scheduler.leap(nextafter(end, 0) if missing else end)[0] == steps - missing


def test_leap_may_run_the_step_that_has_begun_unless_something_ends_with_it() -> None:
    bench = Bench()
    bench.submit(prompt=10, limit=5)
    bench.step()
    assert bench.scheduler.leap(NOW[0] + 0.015, beyond=True) == (2, [])
    assert bench.scheduler.leap(bench.scheduler.step_end + 0.015, beyond=True) == (1, [])


def test_aborted_sequence_no_longer_bounds_a_leap() -> None:
    bench = Bench()
    short, _ = bench.submit(prompt=10, limit=5)
    long, _ = bench.submit(prompt=10, limit=50)
    bench.step()
    assert bench.scheduler.even_steps() == 4
    bench.scheduler.abort(short)
    assert bench.scheduler.leap() == (49, [long])


def test_step_gives_what_is_accepted_of_the_draft_and_one_token() -> None:
    bench = Bench(speculation=Speculation(3, 1.0))
    sequence, told = bench.submit(prompt=100, limit=9)
    assert bench.run() == 3
    assert told.tokens == pytest.approx([0.020] + [0.030] * 4 + [0.040] * 4)
    assert told.ended == pytest.approx([0.040])
    assert sequence.produced == bench.measures.generation_tokens == 9
    assert (bench.measures.spec_drafts, bench.measures.spec_draft_tokens) == (2, 6)
    assert bench.measures.spec_accepted_at == {0: 2, 1: 2, 2: 2}
    assert bench.blocks.usage == 0


@pytest.mark.parametrize("blocks", [12, 40, 1000])
@pytest.mark.parametrize("acceptance", [0.0, 0.6, 1.0])
def test_drafts_lose_no_token_and_no_block(acceptance: float, blocks: int) -> None:
    """Also where the cache is too small for all: they are preempted and start over."""
    bench = Bench(blocks=blocks, speculation=Speculation(4, acceptance))
    asked = [bench.submit(prompt=10 + number, limit=1 + 11 * number) for number in range(12)]
    while bench.step() is not None:
        held = sum(bench.scheduler.blocks_of(sequence) for sequence, _ in asked)
        assert bench.blocks.total - bench.blocks.free >= held
        assert held <= bench.blocks.total
    for sequence, told in asked:
        assert len(told.tokens) == sequence.produced == sequence.limit
        assert len(told.ended) == 1
    assert bench.measures.generation_tokens == sum(sequence.limit for sequence, _ in asked)
    assert bench.blocks.usage == 0
    assert bool(bench.measures.preemptions) == (blocks == 12)


def test_without_room_a_draft_is_cut_to_what_fits() -> None:
    bench = Bench(blocks=2, speculation=Speculation(30, 1.0))
    sequence, told = bench.submit(prompt=BLOCK - 2, limit=BLOCK + 2)
    bench.run()
    assert len(told.tokens) == sequence.limit
    assert bench.measures.preemptions == 0
