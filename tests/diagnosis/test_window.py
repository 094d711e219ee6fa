"""Gauges and counters over several pages."""

import pytest

from replicarouter.diagnosis.window import Window
from tests.diagnosis.pages import Router, snapshot, window


def pages(*texts: str) -> Window:
    return Window(
        [
            snapshot("".join(f"replicarouter_{line}\n" for line in text.split("|")), at)
            for at, text in enumerate(texts)
        ]
    )


def test_counters_grow_by_label() -> None:
    found = pages(
        'shed_total{reason="a"} 1|shed_total{reason="b"} 5',
        'shed_total{reason="a"} 4|shed_total{reason="b"} 5',
    )
    assert found.growths("reason", "shed_total") == {"a": 3, "b": 0}
    assert found.growth("shed_total") == 3
    assert found.growth("shed_total", reason="b") == 0


def test_a_counter_of_the_router_that_appears_has_grown_from_0() -> None:
    assert pages("requests_receiving 0", 'shed_total{reason="a"} 4').growth("shed_total") == 4


def test_a_counter_of_an_engine_that_appears_has_counted_before() -> None:
    found = pages(
        "requests_receiving 0", 'engine_steps_total{replica="a"} 400', 'engine_steps_total{replica="a"} 410'
    )
    assert found.growth("engine_steps_total") == 10


def test_a_counter_that_began_anew_counts_from_0() -> None:
    assert (
        pages("engine_steps_total 100", "engine_steps_total 130", "engine_steps_total 5").growth(
            "engine_steps_total"
        )
        == 35
    )


def test_a_router_that_began_anew_counts_from_0_even_where_it_has_counted_further_since() -> None:
    found = pages(
        "process_start_time_seconds 10|retries_total 3", "process_start_time_seconds 50|retries_total 8"
    )
    assert found.restarted
    assert found.growth("retries_total") == 8


def test_an_engines_counter_goes_on_when_the_router_begins_anew() -> None:
    found = pages(
        'process_start_time_seconds 10|engine_steps_total{replica="a"} 100',
        'process_start_time_seconds 50|engine_steps_total{replica="a"} 108',
    )
    assert found.growth("engine_steps_total") == 8


def test_without_a_start_time_fewer_received_requests_tell_of_a_restart() -> None:
    assert pages("requests_received_total 9", "requests_received_total 2").restarted
    assert not pages("requests_received_total 9", "requests_received_total 9").restarted


def test_means_are_those_of_the_window() -> None:
    found = pages(
        'itl_seconds_sum{replica="a"} 100|itl_seconds_count{replica="a"} 10',
        'itl_seconds_sum{replica="a"} 101|itl_seconds_count{replica="a"} 12',
    )
    mean = found.means("replica", "itl_seconds")["a"]
    assert (mean.seconds, mean.count) == (0.5, 2)
    assert found.mean("itl_seconds") == mean
    assert found.mean("ttft_seconds") is None


def test_gauges_have_courses() -> None:
    found = pages(
        'x{replica="a"} 1|x{replica="b"} 1', 'x{replica="a"} 3', 'x{replica="a"} 2|x{replica="b"} 5'
    )
    assert found.course("x").values == (2, 3, 7)
    assert found.course("y").values == (0, 0, 0)
    assert found.courses("replica", "x")["b"].values == (1, 5)


def test_one_page_tells_no_rates() -> None:
    one = pages("retries_total 3")
    assert (one.rates, one.seconds, one.growth("retries_total"), one.restarted) == (False, 0, 0, False)
    assert window().rates


def test_a_window_has_a_snapshot() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Window([])


def test_a_long_window_is_as_long_as_it_is() -> None:
    def older(router: Router, seconds: float) -> None:
        router.received += seconds

    assert window(older, looks=4, seconds=9).seconds == 9
