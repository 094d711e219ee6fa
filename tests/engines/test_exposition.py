"""The text format: what a sample line may look like, and that strange lines harm nothing."""

import math

import pytest

from replicarouter.engines.exposition import MOST_KEPT, MOST_SAMPLES, PIECE, PageParser

PARSER = PageParser(["a", "ns:a", "ns:b_total"])


def test_only_wanted_names_are_read() -> None:
    samples = PARSER.parse(b"a 1\nab 2\nns:a 3\nns:aa 4\nother 5\nns:b_total 6\n")

    assert samples == {"a": [({}, 1.0)], "ns:a": [({}, 3.0)], "ns:b_total": [({}, 6.0)]}


def test_samples_of_a_metric_keep_their_order_and_labels() -> None:
    samples = PARSER.parse(b'a{x="1",y="two"} 1\na{x="2",y=""} 2\n')

    assert samples == {"a": [({"x": "1", "y": "two"}, 1.0), ({"x": "2", "y": ""}, 2.0)]}


def test_comments_are_not_samples() -> None:
    assert PARSER.parse(b"# HELP a What a is.\n# TYPE a gauge\n#a 1\n") == {}


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (b"a 0", 0.0),
        (b"a -1.5", -1.5),
        (b"a 1.79595150647e+09", 1.79595150647e9),
        (b"a +Inf", math.inf),
        (b"a -Inf", -math.inf),
        (b"a\t7", 7.0),
        (b"a   8  ", 8.0),
        (b"a 9\r", 9.0),
        (b"a 10 1395066363000", 10.0),
        (b"a{} 11", 11.0),
        (b'a { x = "1" , } 12', 12.0),
        (b'a{x="1"} 13 # {trace="t"} 0.5 1.0', 13.0),
    ],
)
def test_a_value_is_read_in_every_spelling_of_the_format(line: bytes, value: float) -> None:
    samples = PARSER.parse(b"other 1\n" + line + b"\nother 2\n")

    assert [read for _, read in samples["a"]] == [value]


def test_not_a_number_is_read_as_such() -> None:
    assert math.isnan(PARSER.parse(b"a NaN\n")["a"][0][1])


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (rb"plain", "plain"),
        (rb"quote \" inside", 'quote " inside'),
        (rb"back\\slash", "back\\slash"),
        (rb"line\nbreak", "line\nbreak"),
        (rb"back\\next", "back\\next"),
        (rb"brace } comma , equals =", "brace } comma , equals ="),
        ("modèle".encode(), "modèle"),
    ],
)
def test_label_values_are_unescaped(written: bytes, meant: str) -> None:
    samples = PARSER.parse(b'a{x="' + written + b'",y="after"} 1\n')

    assert samples == {"a": [({"x": meant, "y": "after"}, 1.0)]}


@pytest.mark.parametrize(
    "line",
    [
        b"a",
        b"a ",
        b"a{",
        b"a{}",
        b'a{x="1"',
        b'a{x="1} 2',
        b"a{x=1} 2",
        b'a{"x"} 2',
        b"a one",
        b"a 1_000",
        b"a 0x10",
        b"a \xff\xfe",
        b"\x00\x01\x02",
        b"{} 1",
    ],
)
def test_a_strange_line_is_skipped_and_the_next_is_read(line: bytes) -> None:
    assert PARSER.parse(line + b"\nns:a 2\n") == {"ns:a": [({}, 2.0)]}


def test_a_page_cut_off_in_a_line_gives_what_came_before() -> None:
    assert PARSER.parse(b'ns:a 1\na{x="') == {"ns:a": [({}, 1.0)]}


def test_a_last_line_without_an_end_is_read() -> None:
    assert PARSER.parse(b"ns:a 1") == {"ns:a": [({}, 1.0)]}


@pytest.mark.parametrize("filler", [b"other 1\n", b"# a comment\n", b"\n", b'ns:aa{x="1"} 5\n'])
@pytest.mark.parametrize("size", [PIECE - 20, PIECE - 6, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE])
def test_a_long_page_is_read_in_pieces_and_no_line_is_lost_or_cut(filler: bytes, size: int) -> None:
    padding = filler * (size // len(filler) + 1)
    page = b"a 1\n" + padding[:size].rsplit(b"\n", 1)[0] + b'\na{x="y"} 2\n' + padding + b"ns:a 3"

    assert PARSER.parse(page) == {"a": [({}, 1.0), ({"x": "y"}, 2.0)], "ns:a": [({}, 3.0)]}


@pytest.mark.parametrize("count", [1, 7, 500, 5000])
def test_every_line_of_a_page_is_read_once(count: int) -> None:
    page = b"".join(b"a %d\n" % number for number in range(count))

    assert [value for _, value in PARSER.parse(page)["a"]] == [float(number) for number in range(count)]


def test_a_page_is_read_in_as_many_steps_as_it_has_pieces() -> None:
    line = b"other 1\n"
    page = line * (4 * PIECE // len(line))

    assert 4 <= len(list(PARSER.steps(page))) <= 5
    assert list(PARSER.steps(b"")) == []


@pytest.mark.parametrize("line", [b"x" * 3 * PIECE, b'a{y="' + b"z" * 3 * PIECE + b'"} 1'])
def test_a_line_longer_than_any_engine_writes_is_passed_over(line: bytes) -> None:
    assert PARSER.parse(b"a 1\n" + line + b"\nns:a 2\n") == {"a": [({}, 1.0)], "ns:a": [({}, 2.0)]}
    assert PARSER.parse(b"a 1\n" + line) == {"a": [({}, 1.0)]}


def test_no_more_samples_are_taken_than_any_engine_has() -> None:
    samples = PARSER.parse(b"a 1\n" * (MOST_SAMPLES + 100) + b"ns:a 2\n")

    assert len(samples["a"]) == MOST_SAMPLES
    assert "ns:a" not in samples


def test_labels_read_before_are_read_alike() -> None:
    """The second time they come from memory, whatever stands behind them."""
    parser = PageParser(["a"])
    labels = b'{x="1 } 2",y="\\"}"}'
    expected = {"x": "1 } 2", "y": '"}'}
    for tail in (b" 1", b" 2 1395066363000", b' 3 # {t="}"} 0.5', b"\t4 "):
        ((found, value),) = parser.parse(b"a" + labels + tail + b"\n")["a"]
        assert (found, value) == (expected, float(tail.split()[0]))
    assert parser.parse(b"a" + labels + b"\n") == {}
    assert parser.parse(b"a" + labels + b' x="2"} 5\n') == {}


def test_labels_that_differ_by_a_character_are_told_apart() -> None:
    parser = PageParser(["a"])
    page = b'a{x="1"} 1\na{x="1",} 2\na {x="1"} 3\na{x="2"} 4\n'
    for _ in range(2):
        assert parser.parse(page)["a"] == [
            ({"x": "1"}, 1.0),
            ({"x": "1"}, 2.0),
            ({"x": "1"}, 3.0),
            ({"x": "2"}, 4.0),
        ]


def test_only_so_many_labels_are_kept() -> None:
    parser = PageParser(["a"])
    for turn in range(3):
        page = b"".join(b'a{x="%d"} %d\n' % (number, turn) for number in range(3 * MOST_KEPT))
        samples = parser.parse(page)["a"]
        assert samples[-1] == ({"x": str(3 * MOST_KEPT - 1)}, float(turn))
        assert len(samples) == 3 * MOST_KEPT
    assert len(parser._labels) <= MOST_KEPT
