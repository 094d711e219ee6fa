"""What engines say of themselves, as the page says it."""

from collections.abc import Callable

import pytest

from replicarouter.engines.base import EngineReading
from replicarouter.exchange import Stage
from tests.scene import a_fleet, named
from tests.telemetry.conftest import INTERVAL, Watched

GAUGES = [
    "engine_requests_running",
    "engine_requests_waiting",
    "engine_kv_usage_ratio",
    "engine_spec_accept_length",
    "engine_spec_draft_length",
    "requests_unexplained",
]
COUNTERS = ["engine_steps", "engine_preemptions", "engine_prefix_queries", "engine_prefix_hits"]


def test_an_engine_says_its_numbers(full: Watched) -> None:
    expected = {
        "engine_requests_running": 1,
        "engine_requests_waiting": 2,
        "engine_kv_usage_ratio": 0.5,
        "engine_steps_total": 50,
        "engine_preemptions_total": 3,
        "engine_prefix_queries_total": 100,
        "engine_prefix_hits_total": 40,
        "engine_spec_accept_length": 2.5,
        "engine_spec_draft_length": 3,
        "engine_series_missing": 1,
        "engine_scrape_age_seconds": 0,
        "engine_max_length_tokens": 4096,
        "requests_unexplained": -3,
    }
    for name, value in expected.items():
        assert full.samples(name) == {("a",): value, ("b",): value}, name
    assert full.samples("engine_info") == {("vllm", "m", "a", "1.0"): 1, ("vllm", "m", "b", "1.0"): 1}
    assert full.samples("engine_cache_dtype_info") == {("fp8", "a"): 1, ("fp8", "b"): 1}


@pytest.mark.parametrize("name", [*GAUGES, "engine_series_missing", "engine_series_absent"])
def test_an_engine_gauge_disappears_with_its_reading(full: Watched, name: str) -> None:
    full.clock.move(3 * INTERVAL)
    assert len(full.samples(name)) == 2

    full.clock.move(0.01)
    assert full.samples(name) == {}


def test_the_age_of_a_reading_goes_on_and_counters_stay(full: Watched) -> None:
    full.clock.move(100)

    assert full.samples("engine_scrape_age_seconds") == {("a",): 100, ("b",): 100}
    assert full.samples("engine_preemptions_total") == {("a",): 3, ("b",): 3}
    assert full.samples("engine_steps_total") == {("a",): 50, ("b",): 50}


def test_what_an_engine_does_not_say_is_not_made_up(watched: Watched) -> None:
    for replica in watched.fleet:
        replica.take(EngineReading(missing=("one", "two")), watched.clock())

    for name in [*GAUGES, *(f"{name}_total" for name in COUNTERS)]:
        assert watched.samples(name) == {}
    for name in ("engine_cache_dtype_info", "engine_max_length_tokens"):
        assert watched.samples(name) == {}
    assert watched.samples("engine_series_missing") == {("a",): 2, ("b",): 2}


def test_each_series_that_an_engine_lacks_is_named(watched: Watched) -> None:
    first, _ = watched.fleet
    first.take(EngineReading(missing=("vllm:x", "vllm:y")), watched.clock())

    assert watched.samples("engine_series_absent") == {("vllm:x", "a"): 1, ("vllm:y", "a"): 1}
    assert watched.samples("engine_series_missing") == {("a",): 2}


def test_restarts_are_told_of_every_replica(watched: Watched) -> None:
    first, _ = watched.fleet
    for steps in (10, 3):
        first.take(EngineReading(steps=steps), watched.clock())
    assert watched.samples("engine_restarts_total") == {("a",): 1, ("b",): 0}


def test_the_length_is_that_of_the_model_which_takes_least(watch: Callable[..., Watched]) -> None:
    fleet = a_fleet("a", "b")
    lengths = {"m1": 4096, "m2": 2048, "m3": None}
    cards = [{"id": model, "max_model_len": length} for model, length in lengths.items()]
    fleet.list_models(named(fleet, "a"), cards)
    assert watch(fleet).samples("engine_max_length_tokens") == {("a",): 2048}


def test_nothing_is_unexplained_once_a_reading_was_taken_in_a_quiet_fleet(watched: Watched) -> None:
    """A page is made a moment before it is read, so one reading may still tell of requests that have ended;
    the next one cannot."""
    replica, _ = watched.fleet
    cells = watched.fleet.ledger.cells
    cells[replica.row + Stage.STREAMING] = 5
    replica.take(EngineReading(running=4, waiting=0), watched.clock())
    assert watched.samples("requests_unexplained") == {("a",): 1}

    cells[replica.row + Stage.STREAMING] = 0
    replica.take(EngineReading(running=5, waiting=0), watched.clock())
    assert watched.samples("requests_unexplained") == {("a",): -5}

    replica.take(EngineReading(running=0, waiting=0), watched.clock())
    assert watched.samples("requests_unexplained") == {("a",): 0}
