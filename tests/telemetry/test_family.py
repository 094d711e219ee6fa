"""Families as the client library has them."""

from prometheus_client.samples import Sample

from replicarouter.cells import Histograms
from replicarouter.telemetry.family import Times, counter, gauge, number


def test_a_gauge_has_a_sample_for_each_row() -> None:
    metric = gauge("height", "How high.", ["where"], [(("here",), 1.5), (("there",), 2)]).metric()

    assert (metric.name, metric.type, metric.documentation) == ("replicarouter_height", "gauge", "How high.")
    assert metric.samples == [
        Sample("replicarouter_height", {"where": "here"}, 1.5),
        Sample("replicarouter_height", {"where": "there"}, 2),
    ]


def test_a_number_has_no_labels() -> None:
    assert number("height", "How high.", 3).metric().samples == [Sample("replicarouter_height", {}, 3)]


def test_a_counter_ends_in_total() -> None:
    metric = counter("falls", "How often.", ["from", "to"], [(("up", "down"), 4)]).metric()

    assert (metric.name, metric.type) == ("replicarouter_falls", "counter")
    assert metric.samples == [Sample("replicarouter_falls_total", {"from": "up", "to": "down"}, 4)]


def test_a_histogram_counts_what_is_below_each_bound() -> None:
    histograms = Histograms((0.5, 1.0))
    for seconds in (0.1, 0.7, 0.8, 9.0):
        histograms.of(("here",)).observe(seconds)
    metric = Times("took_seconds", "How long.", ["where"], histograms).metric()

    assert metric.type == "histogram"
    assert [(sample.labels.get("le"), sample.value) for sample in metric.samples] == [
        ("0.5", 1),
        ("1.0", 3),
        ("+Inf", 4),
        (None, 4),
        (None, 10.6),
    ]
