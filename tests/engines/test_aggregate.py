from replicarouter.engines.aggregate import label, largest, total, values
from replicarouter.engines.exposition import PageParser

SAMPLES = PageParser(["old", "new", "odd"]).parse(
    b'new{part="a"} 1\nnew{part="b"} 4\nold 9\nodd NaN\nodd +Inf\n'
)


def test_the_first_name_that_is_present_counts() -> None:
    assert values(SAMPLES, ("new", "old")) == [1.0, 4.0]
    assert values(SAMPLES, ("absent", "old")) == [9.0]


def test_totals_and_maxima_are_taken_over_all_samples_of_a_metric() -> None:
    assert total(SAMPLES, ("new",)) == 5.0
    assert largest(SAMPLES, ("new",)) == 4.0


def test_what_is_absent_or_not_finite_is_unknown() -> None:
    assert total(SAMPLES, ("absent",)) is None
    assert largest(SAMPLES, ("odd",)) is None


def test_a_label_is_found_on_any_sample() -> None:
    assert label(SAMPLES, "part") == "a"
    assert label(SAMPLES, "model_name") == ""
