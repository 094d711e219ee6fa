"""The text format: what a sample line may look like, and that strange lines harm nothing."""

import math

import pytest

from replicarouter.engines.exposition import PageParser

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
