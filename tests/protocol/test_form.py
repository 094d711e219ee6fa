"""The model field of a form is found however the form arrives, and nothing else is taken for it."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicarouter.protocol.form import LONGEST_MODEL, MOST_OF_HEAD, ModelField
from tests.properties import examples

BOUNDARY = "b'(x)+_,-./:=?"


def form(*parts: tuple[str, bytes], boundary: str = BOUNDARY) -> bytes:
    """Each part is the rest of its disposition and its content."""
    pieces = [
        f"--{boundary}\r\nContent-Disposition: form-data; {disposition}\r\n\r\n".encode() + content + b"\r\n"
        for disposition, content in parts
    ]
    return b"".join([*pieces, f"--{boundary}--\r\n".encode()])


def model_of(*pieces: bytes) -> str | None:
    field = ModelField()
    for piece in pieces:
        field.feed(piece)
    return field.model


MODEL = ('name="model"', b"m1")
FILE = ('name="file"; filename="na\u00efve \\"q\\".mp3"', bytes(range(256)) * 20)


@pytest.mark.parametrize("parts", [(MODEL, FILE), (FILE, MODEL), (FILE, MODEL, FILE)])
@pytest.mark.parametrize("size", [1, 2, 3, 17, 1000, 100_000])
def test_the_field_is_found_in_pieces_of_any_size(parts: tuple[tuple[str, bytes], ...], size: int) -> None:
    body = form(*parts)
    assert model_of(*(body[at : at + size] for at in range(0, len(body), size))) == "m1"


@examples(200)
@given(st.lists(st.integers(0, 400), max_size=6), st.binary(max_size=60))
def test_where_the_pieces_end_does_not_matter(cuts: list[int], content: bytes) -> None:
    body = form(('name="file"; filename="a"', content), ('name="x"', b""), MODEL)
    edges = [0, *sorted(cuts), len(body)]
    pieces = [body[begin:end] for begin, end in pairwise(edges)]
    assert model_of(*pieces) == "m1"


def test_it_is_over_as_soon_as_the_value_is_whole() -> None:
    field = ModelField()
    body = form(MODEL, FILE)
    end = body.index(b"m1\r\n--") + len(b"m1\r\n--" + BOUNDARY.encode())
    field.feed(body[: end - 1])
    assert (field.model, field.over) == (None, False)
    field.feed(body[end - 1 : end])
    assert (field.model, field.over) == ("m1", True)
    field.feed(body[end:])
    assert field.model == "m1"


def test_a_form_inside_a_file_is_content() -> None:
    inner = form(('name="model"', b"other"), boundary="inner")
    assert model_of(form(('name="file"; filename="a"', inner), MODEL)) == "m1"


@pytest.mark.parametrize(
    "body",
    [
        form(FILE),
        form(('name="model"; filename="m"', b"m1")),
        form(('name="model"', b"")),
        form(('name="model"', b"m" * (LONGEST_MODEL + 1))),
        form(('name="model"', b"m" * (LONGEST_MODEL + 1)), MODEL),
        form(('name="base_model"', b"m1")),
        b"",
        b"--",
        b'{"model":"m1"}',
        b"x" * 1000,
        b"--" + b"x" * 1000,
        b"--b\r\n" + b"x" * (MOST_OF_HEAD + 1) + b"\r\n\r\nm1\r\n--b--",
    ],
)
def test_without_such_a_field_there_is_no_model(body: bytes) -> None:
    assert model_of(body) is None
    assert model_of(*(body[at : at + 1] for at in range(len(body)))) is None


@pytest.mark.parametrize(
    "body",
    [
        b"x",
        b"--" + b"x" * 300,
        b"--b\r\n" + b"x" * (MOST_OF_HEAD + 1),
        b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\n' + b"m" * (LONGEST_MODEL + 100),
    ],
)
def test_what_can_no_longer_name_a_model_is_not_read_on(body: bytes) -> None:
    field = ModelField()
    field.feed(body)
    assert field.over


def test_a_long_file_is_not_kept() -> None:
    field = ModelField()
    field.feed(form(FILE)[:100])
    for _ in range(100):
        field.feed(bytes(10_000))
    assert len(field._rest) < 1000
