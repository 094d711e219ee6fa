"""How long things take, as the page says it."""

from tests.telemetry.conftest import Watched


def test_a_duration_counts_in_every_bucket_it_fits_into(watched: Watched) -> None:
    for seconds in (0.002, 0.02, 5.0):
        watched.metrics.gaps.of(("a",)).observe(seconds)

    buckets = watched.samples("itl_seconds_bucket")
    limits = ("0.002", "0.005", "0.015", "0.02", "1.0", "+Inf")
    assert [buckets[limit, "a"] for limit in limits] == [1, 1, 1, 2, 2, 3]
    assert watched.samples("itl_seconds_count") == {("a",): 3}
    assert watched.samples("itl_seconds_sum") == {("a",): 5.022}


def test_tokens_are_told_by_model_and_kind(full: Watched) -> None:
    told = full.samples("tokens_total")
    assert told == {("prompt", "m1"): 5, ("cached", "m1"): 1, ("completion", "m1"): 7}
