"""Counters and histograms in flat arrays."""

import pytest

from replicarouter.cells import Counter, Histogram, Histograms

BOUNDS = (1.0, 2.0, 4.0)


def test_a_counter_counts_each_tuple_of_labels_on_its_own() -> None:
    counter = Counter()
    counter.add(("a", "ok"))
    counter.add(("b", "ok"), 5)
    counter.add(("a", "ok"))

    assert dict(counter) == {("a", "ok"): 2, ("b", "ok"): 5}
    assert counter.value(("a", "ok")) == 2


def test_a_row_that_was_never_counted_is_zero_and_is_not_listed() -> None:
    counter = Counter()

    assert counter.value(("a",)) == 0
    assert list(counter) == []


def test_a_touched_row_is_listed_at_zero() -> None:
    counter = Counter()
    counter.touch(("a",))

    assert list(counter) == [(("a",), 0)]


@pytest.mark.parametrize(
    ("value", "bucket"), [(0.0, 0), (1.0, 0), (1.1, 1), (2.0, 1), (4.0, 2), (4.1, 3), (1e9, 3)]
)
def test_a_bound_belongs_to_the_bucket_below_it(value: float, bucket: int) -> None:
    histogram = Histogram(BOUNDS)
    histogram.observe(value)

    assert list(histogram.counts) == [int(index == bucket) for index in range(4)]
    assert (histogram.count, histogram.total) == (1, value)


def test_a_quantile_of_nothing_is_unknown() -> None:
    assert Histogram(BOUNDS).quantile(0.5) is None


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 0.0), (0.25, 0.5), (0.5, 1.0), (0.75, 1.5), (1.0, 2.0)]
)
def test_a_quantile_is_interpolated_inside_its_bucket(share: float, expected: float) -> None:
    histogram = Histogram(BOUNDS)
    for value in (0.5, 0.5, 1.5, 1.5):
        histogram.observe(value)

    assert histogram.quantile(share) == pytest.approx(expected)


def test_a_quantile_skips_empty_buckets() -> None:
    histogram = Histogram(BOUNDS)
    histogram.observe(3.0)

    assert histogram.quantile(0.5) == pytest.approx(3.0)


def test_a_quantile_in_the_open_bucket_is_the_last_bound() -> None:
    histogram = Histogram(BOUNDS)
    histogram.observe(100.0)

    assert histogram.quantile(0.9) == 4.0


def test_a_series_is_made_once_for_its_labels() -> None:
    histograms = Histograms(BOUNDS)

    assert histograms.of(("a",)) is histograms.of(("a",))
    assert histograms.of(("a",)) is not histograms.of(("b",))
    assert [labels for labels, _ in histograms] == [("a",), ("b",)]


def test_merged_series_add_up_and_stay_as_they_were() -> None:
    histograms = Histograms(BOUNDS)
    histograms.of(("a",)).observe(0.5)
    histograms.of(("b",)).observe(3.0)
    histograms.of(("b",)).observe(9.0)

    whole = histograms.merged()

    assert (list(whole.counts), whole.count, whole.total) == ([1, 0, 1, 1], 3, 12.5)
    assert histograms.of(("a",)).count == 1


def test_rows_folded_together_keep_their_sum() -> None:
    counter = Counter()
    for labels, amount in ((("a", "x"), 1), (("a", "y"), 2), (("b", "x"), 4), (("old", "x"), 8)):
        counter.add(labels, amount)
    counter.fold(0, "a", "old")
    counter.fold(0, "nobody", "old")

    assert dict(counter) == {("b", "x"): 4, ("old", "x"): 9, ("old", "y"): 2}
    counter.add(("c", "x"), 16)
    assert dict(counter) == {("b", "x"): 4, ("old", "x"): 9, ("old", "y"): 2, ("c", "x"): 16}


def test_a_counter_whose_labels_come_and_go_does_not_grow() -> None:
    counter = Counter()
    for number in range(10_000):
        counter.add((f"n{number}",))
        counter.fold(0, f"n{number}", "old")

    assert dict(counter) == {("old",): 10_000}
    assert len(counter._values) == 2


def test_series_folded_together_keep_their_sum() -> None:
    histograms = Histograms((1.0, 2.0))
    for name, value in (("a", 0.5), ("a", 5.0), ("b", 1.5), ("old", 0.5)):
        histograms.of((name,)).observe(value)
    before = histograms.merged()
    histograms.fold(0, "a", "old")

    assert sorted(labels for labels, _ in histograms) == [("b",), ("old",)]
    assert list(histograms.of(("old",)).counts) == [2, 0, 1]
    after = histograms.merged()
    assert (list(after.counts), after.total) == (list(before.counts), before.total)


def test_the_cell_of_a_row_may_be_added_to_until_rows_are_folded() -> None:
    counter, told = Counter(), []
    counter.on_fold = lambda: told.append(dict(counter))
    assert counter.cell(("a",)) is None
    counter.add(("a",))
    found = counter.cell(("a",))
    assert found is not None
    cells, row = found
    cells[row] += 4
    assert (dict(counter), told) == ({("a",): 5}, [])

    counter.fold(0, "a", "old")
    assert told == [{("old",): 5}]


def test_it_is_told_when_series_are_folded() -> None:
    histograms, told = Histograms((1.0,)), []
    histograms.on_fold = lambda: told.append([labels for labels, _ in histograms])
    histograms.observe(("a",), 0.5)
    assert told == []

    histograms.fold(0, "a", "old")
    assert told == [[("old",)]]
