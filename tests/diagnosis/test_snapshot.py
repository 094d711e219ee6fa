"""One page, read."""

import math

from prometheus_client.core import GaugeMetricFamily

from replicarouter.diagnosis.snapshot import Snapshot, without_buckets
from tests.diagnosis.pages import fleet, snapshot

PAGE = """\
# TYPE replicarouter_requests_outstanding gauge
replicarouter_requests_outstanding{replica="a",stage="sent"} 1
replicarouter_requests_outstanding{replica="a",stage="streaming"} 2
replicarouter_requests_outstanding{replica="b",stage="sent"} 4
replicarouter_itl_seconds_bucket{replica="a",le="0.1"} 7
replicarouter_itl_seconds_sum{replica="a"} 0.5
replicarouter_held_seconds NaN
other_requests_outstanding 99
"""


def test_samples_are_summed_by_their_labels() -> None:
    page = snapshot(PAGE)
    assert page.total("requests_outstanding") == 7
    assert page.total("requests_outstanding", replica="a") == 3
    assert page.by("replica", "requests_outstanding") == {"a": 3, "b": 4}
    assert page.by("stage", "requests_outstanding", replica="a") == {"sent": 1, "streaming": 2}
    assert [row["stage"] for row, _ in page.rows("requests_outstanding", replica="b")] == ["sent"]


def test_what_a_page_does_not_say_is_none_and_counts_as_0() -> None:
    page = snapshot(PAGE)
    assert page.value("queue_limit") is None
    assert page.value("requests_outstanding", replica="c") is None
    assert page.total("queue_limit") == 0


def test_buckets_other_programs_and_values_without_meaning_are_left_out() -> None:
    page = snapshot(PAGE)
    assert page.samples("itl_seconds_bucket") == ()
    assert page.value("itl_seconds_sum") == 0.5
    assert page.value("held_seconds") is None


def test_a_page_without_its_buckets_reads_the_same() -> None:
    assert "_bucket" in PAGE
    assert "_bucket" not in without_buckets(PAGE)
    assert without_buckets(PAGE).endswith("99\n")
    assert snapshot(without_buckets(PAGE)).total("requests_outstanding") == 7


def test_families_of_a_collector_are_read_like_a_page() -> None:
    family = GaugeMetricFamily("replicarouter_queue_limit", "text", labels=["model"])
    family.add_metric(["m"], 3)
    family.add_metric(["n"], math.inf)
    assert Snapshot.of([family], 1.5).by("model", "queue_limit") == {"m": 3}
    assert Snapshot.of([family], 1.5).at == 1.5


def test_a_routers_page_is_known_by_its_first_series_and_whole_by_its_last() -> None:
    page = fleet(0).page()
    assert (snapshot(page).of_router, snapshot(page).whole) == (True, True)
    assert not snapshot(page[: page.index("\n", len(page) // 2) + 1]).whole
    assert not snapshot("vllm:num_requests_running 1\n").of_router


def test_a_page_tells_when_it_was_written_if_its_router_does() -> None:
    assert snapshot(PAGE).written is None
    assert snapshot(f"{PAGE}replicarouter_time_seconds 1.70000000025e+09\n").written == 1_700_000_000.25


def test_a_page_can_be_given_another_time() -> None:
    page = snapshot(PAGE, 1.0).moved(9.0)
    assert (page.at, page.total("requests_outstanding")) == (9.0, 7)
