"""Long texts are lifted out of a body and come back in their places, and never change what it means."""

import random
from typing import Any

import orjson
import pytest

from replicarouter.protocol.json_values import MOST_AT_ONCE, Opaque, ValueBuilder
from replicarouter.protocol.long_texts import MOST_SEEN, lift, put_back

CHANCE = random.Random(5)
LONG = "data:image/png;base64," + "iVBORw0KGgo" * (MOST_AT_ONCE // 8)


def parsed(body: bytes) -> tuple[Any, int]:
    """The body as parsed with its long texts lifted, and how many those were."""
    rest, lifted = lift(body, CHANCE)
    fields = orjson.loads(rest)
    assert put_back(fields, lifted)
    return fields, len(lifted)


def built(body: bytes) -> Any:
    steps = ValueBuilder(body).build((0, len(body)))
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value


def plain(value: Any) -> Any:
    """The same with what tells one `Opaque` from another in its place."""
    if type(value) is dict:
        return {name: plain(one) for name, one in value.items()}
    if type(value) is list:
        return [plain(one) for one in value]
    return (value.digest, value.size, value.start) if type(value) is Opaque else value


def prompt(*texts: str) -> dict[str, Any]:
    parts = [{"type": "image_url", "image_url": {"url": text}} for text in texts]
    return {"model": "m1", "messages": [{"role": "user", "content": parts}], "stream": True}


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("short", ["", "a short text", "x" * (MOST_AT_ONCE // 2)])
def test_long_texts_are_what_a_builder_makes_of_them(count: int, short: str) -> None:
    body = orjson.dumps(prompt(*[short, LONG] * count, short))
    fields, lifted = parsed(body)
    assert lifted == count
    parts = fields["messages"][0]["content"]
    assert [type(part["image_url"]["url"]) for part in parts] == [str, Opaque] * count + [str]
    # A builder leaves off what stands behind the first mebibytes.
    first = built(orjson.dumps(prompt(short, LONG, short)["messages"]))
    assert plain(parts[1]) == plain(first[0]["content"][1])


@pytest.mark.parametrize("size", [0, 1000, MOST_AT_ONCE - 3])
def test_nothing_is_lifted_that_is_not_long(size: int) -> None:
    body = orjson.dumps(prompt("x" * size, "y" * size))
    assert lift(body, CHANCE) == (body, {})


def test_the_long_stretch_between_two_texts_is_no_text() -> None:
    body = b'{"input":[' + b"1," * MOST_AT_ONCE + b'2],"model":"m1"}'
    rest, lifted = lift(body, CHANCE)
    assert lifted
    with pytest.raises(orjson.JSONDecodeError):
        orjson.loads(rest)


@pytest.mark.parametrize("around", ['"', 'a "', "\\", '\\"'])
def test_a_text_with_escapes_at_its_ends_means_the_same(around: str) -> None:
    text = around + "x" * (3 * MOST_AT_ONCE) + around
    fields, _ = parsed(orjson.dumps({"prompt": text}))
    value = fields["prompt"]
    assert value == text or (type(value) is Opaque and text.startswith(value.start))


def test_any_mixture_means_the_same() -> None:
    chance = random.Random(11)
    for _ in range(40):
        sizes = [chance.choice([0, 5, 1000, 200_000, 600_000, 1_200_000]) for _ in range(6)]
        texts = [chance.choice(["x", "é", "\n", '"', "1,"]) * size for size in sizes]
        fields, _ = parsed(orjson.dumps({"a": texts, "model": "m1", "b": {"c": texts[0]}}))
        assert fields["model"] == "m1"
        for value, text in zip([*fields["a"], fields["b"]["c"]], [*texts, texts[0]], strict=True):
            if type(value) is Opaque:
                assert text.startswith(value.start)
                assert len(value.start) > MOST_AT_ONCE // 4
            else:
                assert value == text


def test_a_name_is_not_looked_for_without_end() -> None:
    rest, lifted = lift(orjson.dumps({"a": {"b": LONG}, "c": ["x"] * (MOST_SEEN + 1)}), CHANCE)
    assert not put_back(orjson.loads(rest), lifted)
