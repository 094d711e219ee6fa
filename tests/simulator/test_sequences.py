from replicarouter.simulator.sequences import NOBODY, Sequence, StepClock


def test_progress_is_read_off_the_clock_while_it_decodes() -> None:
    sequence = Sequence(prompt_tokens=10, limit=5)
    sequence.base = 2
    assert (sequence.produced, sequence.tokens) == (2, 12)
    clock = StepClock()
    clock.steps = 7
    sequence.base, sequence.clock = 2 - 7, clock
    assert sequence.produced == 2
    clock.steps += 3
    assert (sequence.produced, sequence.tokens) == (5, 15)


def test_longest_known_chain_counts() -> None:
    sequence = Sequence(prompt_tokens=32, limit=32, hashes=[1, 2])
    assert list(sequence.chain) == [1, 2]
    sequence.final_hashes = [1, 2, 3]
    assert list(sequence.chain) == [1, 2, 3]


def test_nobody_listens_by_default() -> None:
    sequence = Sequence(prompt_tokens=1, limit=1)
    assert sequence.listener is NOBODY
    sequence.listener.token()
    sequence.listener.finished()
