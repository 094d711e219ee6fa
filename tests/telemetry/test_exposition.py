"""The page is the client library's, byte for byte."""

import subprocess
from collections.abc import Iterable
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest

from replicarouter.cells import Histograms
from replicarouter.telemetry.exposition import SPARE, Exposition
from replicarouter.telemetry.family import Family, Times, counter, gauge, number
from tests.fakes.programs import program
from tests.properties import examples
from tests.telemetry.conftest import Watched

NUMBERS = st.floats() | st.integers(-(2**60), 2**60) | st.integers(-(2**20), 2**20) | st.booleans()
NAMES = ("alpha", "le_mans", "zulu")
"""Before and after `le` in the alphabet, where the bounds of a histogram stand."""


class Given:
    """These families, each time anew."""

    def __init__(self, *families: Family) -> None:
        self.families = families

    def collect(self) -> Iterable[object]:
        return [family.metric() for family in self.families]


def by_library(*families: Family) -> str:
    return generate_latest(Given(*families)).decode()  # type: ignore[arg-type]


def by_us(*families: Family) -> str:
    exposition = Exposition(lambda: families)
    first = exposition.page()
    assert exposition.page() == first, "with what was kept of the first page too"
    return first.decode()


def durations(*labels: tuple[str, ...], seconds: Iterable[float] = (0.1, 0.7, 2.0)) -> Histograms:
    histograms = Histograms((0.0005, 0.5, 1.0, 600.0))
    for values in labels:
        for one in seconds:
            histograms.of(values).observe(one)
    return histograms


def test_the_page_of_a_router_is_the_librarys(full: Watched) -> None:
    process = list(full.process())  # Memory and CPU time go on, also between two readings.
    full.process = lambda: process
    ours = Exposition(full.collector.families).page()
    assert ours.decode().split("\n") == generate_latest(full.collector).decode().split("\n")


@pytest.mark.parametrize(
    "value",
    [
        *(0, -0.0, 1, True, -1, 0.5, 1e-7, 5e-324, 0.1 + 0.2, inf, -inf, nan),
        *(999_999, 999_999.5, 1_000_000, 1_000_000.5, 1_234_567, 10_000_000, -999_999, -1_000_000),
        *(2**53 + 2, 1e15, 1e16, 1.5e16, 1e22, 1e300, -1e16),
    ],
)
def test_a_number_is_written_as_the_library_writes_it(value: float) -> None:
    family = number("height", "How high.", value)
    assert by_us(family) == by_library(family)


@examples(300)
@given(value=NUMBERS)
def test_any_number_is_written_as_the_library_writes_it(value: float) -> None:
    family = number("height", "How high.", value)
    assert by_us(family) == by_library(family)


@pytest.mark.parametrize(
    "text", ['quote"', "back\\slash", "line\nbreak", "\\n", "ü🙂", "a{b}", "%s %d %%", ""]
)
def test_text_is_escaped_as_the_library_escapes_it(text: str) -> None:
    families: tuple[Family, ...] = (
        gauge("height", text, ["where"], [((text,), 1)]),
        counter("falls", text, ["zulu", "alpha"], [((text, "b"), 1)]),
        Times("took_seconds", text, ["where"], durations((text,))),
    )
    assert by_us(*families) == by_library(*families)


@examples(200)
@given(values=st.tuples(*[st.text(max_size=8) for _ in NAMES]), counts=st.lists(st.floats(), max_size=6))
def test_any_labels_and_durations_are_written_as_the_library_writes_them(
    values: tuple[str, ...], counts: list[float]
) -> None:
    families: tuple[Family, ...] = (
        gauge("height", "How high.", NAMES, [(values, 1)]),
        counter("falls", "How often.", NAMES, [(values, 1)]),
        Times("took_seconds", "How long.", NAMES, durations(values, seconds=counts)),
    )
    assert by_us(*families) == by_library(*families)


def test_a_histogram_of_millions_is_written_as_the_library_writes_it() -> None:
    histograms = durations(("here",))
    histograms.of(("here",)).counts[1] = 123_456_789
    histograms.of(("here",)).total = 1e9
    family = Times("took_seconds", "How long.", ["where"], histograms)
    assert by_us(family) == by_library(family)


def test_a_family_without_rows_has_its_head(watched: Watched) -> None:
    families: tuple[Family, ...] = (
        gauge("height", "How high.", ["where"], []),
        counter("falls", "How often.", [], []),
        Times("took_seconds", "How long.", ["where"], durations()),
    )
    assert by_us(*families) == by_library(*families)


def test_text_that_cannot_be_encoded_does_not_take_the_page_away() -> None:
    family = gauge("height", "How high.", ["where"], [(("\ud800",), 1)])
    assert 'replicarouter_height{where="?"} 1.0' in by_us(family)


def test_values_are_those_of_now(watched: Watched) -> None:
    exposition = Exposition(watched.collector.families)
    exposition.page()
    watched.fleet.ledger.receiving = 3
    assert b"replicarouter_requests_receiving 3.0\n" in exposition.page()


def test_rows_that_come_and_go_are_not_kept_for_ever() -> None:
    names = [str(number) for number in range(50 * SPARE)]
    rows: list[tuple[tuple[str], float]] = []
    exposition = Exposition(lambda: [gauge("height", "How high.", ["where"], rows)])
    for name in names:
        rows[:] = [((name,), 1.0)]
        page = exposition.page().decode()
        assert page == by_library(gauge("height", "How high.", ["where"], rows))
    assert exposition.kept <= SPARE + 3


def test_the_page_of_a_busy_router_is_clean(full: Watched) -> None:
    """By the rules of Prometheus: units, suffixes, help, no metric twice."""
    promtool = program("promtool", "prometheus")
    page = Exposition(full.collector.families).page()
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=page, capture_output=True, check=False, timeout=30
    )
    assert (checked.returncode, checked.stdout.decode(), checked.stderr.decode()) == (0, "", "")
