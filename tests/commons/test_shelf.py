"""Counters and histograms in cells that outlive their worker."""

import logging
from typing import Any

import pytest

from replicarouter.cells import Counter, Histograms
from replicarouter.commons import layout, shelf
from replicarouter.commons.layout import ARENA, LEVELS
from replicarouter.commons.memory import Commons
from replicarouter.commons.shelf import Reading

BOUNDS = (1.0, 2.0)


def test_a_successor_goes_on_counting(commons: Commons) -> None:
    own = commons.seat(0).shelf
    counter, gaps = Counter("attempts", own), Histograms(BOUNDS, "gaps", own)
    counter.add(("a", "ok"), 3)
    gaps.of(("a",)).observe(1.5)
    commons.vacate(0)
    again = commons.seat(0).shelf
    counter, gaps = Counter("attempts", again), Histograms(BOUNDS, "gaps", again)
    assert dict(counter) == {("a", "ok"): 3}
    counter.add(("a", "ok"))
    counter.add(("b", "ok"))
    gaps.of(("a",)).observe(5.0)

    assert dict(counter) == {("a", "ok"): 4, ("b", "ok"): 1}
    (series,) = [one for _, one in gaps]
    assert (list(series.counts), series.total) == ([0, 1, 1], 6.5)


def test_others_read_what_a_worker_counts(commons: Commons) -> None:
    own = commons.seat(1).shelf
    counter, gaps = Counter("attempts", own), Histograms(BOUNDS, "gaps", own)
    counter.add(("a",), 2)
    gaps.of(("a",)).observe(0.5)
    place = commons.seats[1]
    read, read_gaps = Counter("attempts", Reading(place)), Histograms(BOUNDS, "gaps", Reading(place))
    for (name, labels), (offset, _) in place.series().items():
        (read if name == "attempts" else read_gaps).learn(labels, offset)
    counter.add(("a",))
    gaps.of(("a",)).observe(0.5)

    assert dict(read) == {("a",): 3}
    assert read_gaps.of(("a",)).count == 2
    read.forget(("a",))
    read_gaps.forget(("a",))
    assert (list(read), list(read_gaps)) == ([], [])
    read.add(("b",))
    assert dict(read) == {("b",): 1}, "what is not on the shelf is counted beside it"


def test_a_new_series_is_told_before_its_first_count(commons: Commons) -> None:
    own = commons.seat(0).shelf
    told: list[Any] = []
    own.on_series = lambda *series: told.append((*series, own.cells[series[2]]))
    own.on_drop = lambda *series: told.append(series)
    counter = Counter("attempts", own)
    counter.add(("a",), 5)
    counter.add(("a",), 5)
    counter.fold(0, "a", "removed")

    assert told == [
        ("attempts", ("a",), LEVELS, 1, 0),
        ("attempts", ("a",)),
        ("attempts", ("removed",), LEVELS, 1, 0),
    ]
    assert dict(counter) == {("removed",): 10}
    assert dict(Counter("attempts", commons.seat(0).shelf)) == {("removed",): 10}


def test_cells_of_a_series_that_is_gone_are_used_again(commons: Commons) -> None:
    own = commons.seat(0).shelf
    gaps = Histograms(BOUNDS, "gaps", own)
    for number in range(500):
        gaps.of((str(number),)).observe(1.0)
        gaps.fold(0, str(number), "removed")

    assert [labels for labels, _ in gaps] == [("removed",)]
    assert gaps.of(("removed",)).count == 500
    assert max(offset + size for offset, size in commons.seats[0].series().values()) <= LEVELS + 3 * 4


@pytest.mark.parametrize("full", ["arena", "directory"])
def test_a_full_shelf_is_said_once_and_nothing_is_lost(
    commons: Commons, full: str, caplog: pytest.LogCaptureFixture
) -> None:
    own = commons.seat(0).shelf
    if full == "arena":
        assert own.take("most of it", (), ARENA - LEVELS - 1) is not None
    else:
        own.take("long", ("x" * (layout.DIRECTORY * layout.CELL - 200),), 1)
    counter, gaps = Counter("attempts", own), Histograms(BOUNDS, "gaps", own)
    with caplog.at_level(logging.WARNING, logger=shelf.__name__):
        for number in range(20):
            counter.add((str(number),), number)
            counter.add((str(number),))
            gaps.of((str(number),)).observe(1.0)

    assert dict(counter) == {(str(number),): number + 1 for number in range(20)}
    assert counter.value(("19",)) == 20
    assert gaps.merged().count == 20
    assert len(caplog.records) == 1
    counter.fold(0, "19", "removed")
    assert sum(count for _, count in counter) == sum(range(1, 21))


def test_a_level_ends_with_its_worker(commons: Commons) -> None:
    own = commons.seat(0).shelf
    offset = own.take("queued", ("m1",), 1, level=True)
    assert offset is not None
    assert offset < LEVELS
    own.cells[offset] = 4
    commons.vacate(0)

    assert own.cells[offset] == 0
    assert commons.seat(0).shelf.take("queued", ("m1",), 1, level=True) == offset


def test_there_are_so_many_levels_and_no_more(commons: Commons) -> None:
    own = commons.seat(0).shelf
    taken = [own.take("queued", (str(number),), 1, level=True) for number in range(LEVELS + 1)]

    assert len(set(taken)) == LEVELS + 1
    assert taken[-1] is None
