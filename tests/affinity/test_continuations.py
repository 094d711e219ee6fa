"""Raw prompts that go on where an earlier one ended."""

import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicarouter.affinity import continuations
from replicarouter.affinity.continuations import MOST_HEIRS, Continuations
from tests.properties import examples

TEMPLATE = b"You are a helpful assistant of the company. Answer in one sentence. " * 40


def words(random_source: random.Random, length: int) -> bytes:
    return bytes(random_source.choices(b"abcdefgh ", k=length))


@pytest.mark.parametrize("first", [1, 5, 127, 128, 129, 256, 3000])
@pytest.mark.parametrize("more", [1, 127, 128, 500])
def test_all_turns_of_a_conversation_have_its_head(first: int, more: int) -> None:
    source, memory = random.Random(1), Continuations()
    prompt = words(source, first)
    head = memory.head(prompt)
    for _ in range(5):
        prompt += words(source, more)
        assert memory.head(prompt) == head


def test_the_same_prompt_has_the_same_head_however_often() -> None:
    memory = Continuations()
    assert len({memory.head(TEMPLATE + b"why?") for _ in range(20)}) == 1
    assert len(memory) == 1


def test_prompts_from_one_template_have_heads_of_their_own() -> None:
    memory = Continuations()
    prompts = [TEMPLATE + b"question %d, and the rest" % number for number in range(300)]
    assert len({memory.head(prompt) for prompt in prompts}) == 300


@pytest.mark.parametrize("template", [b"Q", TEMPLATE, TEMPLATE[:128]])
def test_a_template_that_came_alone_is_no_turn_of_all_that_follow(template: bytes) -> None:
    """Sent to warm a cache up, it is the beginning of everything, and would become one key for all."""
    memory = Continuations()
    alone = memory.head(template)
    heads = [memory.head(template + b": question %d?" % number) for number in range(300)]
    assert heads.count(alone) == MOST_HEIRS
    assert len(set(heads)) == 300 - MOST_HEIRS + 1


def test_the_longest_known_beginning_counts() -> None:
    memory = Continuations()
    short, long = memory.head(TEMPLATE), memory.head(b"x" + TEMPLATE)
    assert short != long
    branch = TEMPLATE + b"one way"
    assert memory.head(branch) == short
    for number in range(MOST_HEIRS):
        memory.head(TEMPLATE + b"%d" % number)
    assert memory.head(branch + b", and on") == short, "by the turn before, as the first has its heirs"


@examples(200)
@given(st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=5), st.data())
def test_only_an_exact_beginning_counts(turns: list[bytes], data: st.DataObject) -> None:
    memory = Continuations()
    prompt = b"".join(turns)
    head = memory.head(prompt)
    place = data.draw(st.integers(0, len(prompt) - 1))
    other = bytearray(prompt)
    other[place] ^= 1
    assert memory.head(bytes(other) + b"more") != head
    assert memory.head(prompt + b"more") == head


def test_seeds_keep_prompts_apart() -> None:
    memory = Continuations()
    assert memory.head(TEMPLATE, 1) != memory.head(TEMPLATE + b"x", 2)


def test_the_oldest_are_forgotten_and_nothing_is_left_of_them() -> None:
    memory = Continuations(most=50)
    source = random.Random(2)
    old = words(source, 400)
    head = memory.head(old)
    for _ in range(50):
        memory.head(words(source, 400))
    assert len(memory) == 50
    assert memory.head(old + b"more") != head
    assert len(memory._stems) == 50


def test_one_that_is_forgotten_does_not_hide_others_that_end_at_its_place() -> None:
    memory = Continuations(most=3)
    prompts = [TEMPLATE + b"%03d" % number for number in range(4)]
    heads = [memory.head(prompt) for prompt in prompts]
    assert memory.head(prompts[3] + b"more") == heads[3]


def test_memory_is_as_large_as_it_says() -> None:
    most = 4096
    memory, source = Continuations(most=most), random.Random(3)
    tracemalloc.start()
    for _ in range(most * 3 // 2):
        memory.head(source.randbytes(200))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held / most < 25e6 / continuations.MOST_PROMPTS * 1.5


def test_prompts_that_are_the_same_for_half_a_million_characters_are_the_same() -> None:
    memory = Continuations()
    start = random.Random(4).randbytes(continuations.MOST_CHARACTERS)
    assert memory.head(start + b"a") == memory.head(start + b"b")


def test_ends_that_do_not_fit_are_not_all_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever makes such prompts would hold up the streams of others with every one that follows."""
    memory, prompt = Continuations(), words(random.Random(3), 128 * 40)
    for length in range(128, len(prompt)):
        if length % 128:
            memory.head(prompt[: length - length % 128] + b"?" * (length % 128))
    head = memory.head(prompt[:64])
    assert memory.head(prompt[:-1]) != head, "the end that fits stands behind thousands that do not"
    monkeypatch.setattr(continuations, "MOST_TRIES", 10**6)
    assert memory.head(prompt[:-2]) == head
