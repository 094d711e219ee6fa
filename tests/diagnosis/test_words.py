"""Numbers and names in sentences."""

import pytest

from replicarouter.diagnosis.words import counted, length, names, number, percent, power_of_two, seconds


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.5, "1"), (1, "1"), (2.5, "3"), (99.5, "100"), (1234, "1,234")],
)
def test_counts_are_whole(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(("share", "text"), [(0, "0%"), (0.004, "0.4%"), (0.5, "50%"), (1, "100%")])
def test_shares(share: float, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0 ms"), (0.0131, "13.1 ms"), (3.333, "3.33 s"), (60, "60 s"), (1500, "1,500 s")]
)
def test_durations(value: float, text: str) -> None:
    assert seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.604, "604 ms"), (5.04, "5 s"), (5.07, "5.1 s"), (60.02, "60 s")],
)
def test_lengths_of_windows(value: float, text: str) -> None:
    assert length(value) == text


@pytest.mark.parametrize(("least", "power"), [(0, 1), (1, 1), (255, 256), (256, 256), (257, 512)])
def test_powers_of_two(least: float, power: int) -> None:
    assert power_of_two(least) == power


def test_words_and_names() -> None:
    assert (counted(1, "replica"), counted(2, "replica")) == ("1 replica", "2 replicas")
    assert (counted(0, "request"), counted(0.5, "request")) == ("0 requests", "1 request")
    assert names(["a", "b"]) == "a, b"
    assert names(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
