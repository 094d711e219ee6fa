"""Prompts that grow."""

from replicarouter.replay.growth import GrowingPrompt, head_blocks


def test_blocks_appear_when_they_are_full_and_then_stay() -> None:
    prompt = GrowingPrompt(1, 16)
    prompt.grow(15)
    assert prompt.blocks() == ()
    prompt.grow(18)
    before = prompt.blocks()
    assert (prompt.tokens, len(before)) == (33, 2)
    prompt.grow(15)
    assert prompt.blocks()[:2] == before
    assert len(prompt.blocks()) == 3


def test_only_the_head_is_shared() -> None:
    head = head_blocks(9, 40, 16)
    one, other = (GrowingPrompt(serial, 16, head, 40) for serial in (1, 2))
    for prompt in (one, other):
        prompt.grow(24)
    assert one.tokens == other.tokens == 64
    assert one.blocks()[:2] == other.blocks()[:2] == tuple(head)
    # The third block holds the last 8 tokens of the head and 8 of its own.
    assert not set(one.blocks()[2:]) & set(other.blocks()[2:])


def test_a_longer_head_begins_with_the_shorter_one() -> None:
    assert head_blocks(9, 64, 16)[:2] == head_blocks(9, 32, 16) != head_blocks(8, 32, 16)


def test_a_prompt_can_begin_with_given_blocks() -> None:
    prompt = GrowingPrompt(1, 16)
    prompt.begin([5, 6])
    prompt.grow(16)
    assert prompt.blocks()[:2] == (5, 6)
    assert prompt.tokens == 48
