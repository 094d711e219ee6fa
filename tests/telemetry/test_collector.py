"""The metrics page: names, labels and values as the contract has them."""

import re
from collections.abc import Callable

import pytest

from replicarouter.engines.base import EngineReading
from replicarouter.exchange import Stage
from replicarouter.fleet.ledger import OUTSTANDING
from replicarouter.fleet.lifecycle import Event, State
from tests.scene import a_fleet, an_exchange, replica_settings
from tests.telemetry.conftest import INTERVAL, Watched

G, C, H = "gauge", "counter", "histogram"
CONTRACT: dict[str, tuple[str, set[str]]] = {
    "requests_received": (C, {"endpoint"}),
    "requests": (C, {"endpoint", "model", "replica", "outcome"}),
    "requests_receiving": (G, set()),
    "requests_queued": (G, {"model"}),
    "requests_outstanding": (G, {"replica", "stage"}),
    "engine_requests_running": (G, {"replica"}),
    "engine_requests_waiting": (G, {"replica"}),
    "engine_kv_usage_ratio": (G, {"replica"}),
    "engine_scrape_age_seconds": (G, {"replica"}),
    "requests_unexplained": (G, {"replica"}),
    "proxy_limited": (G, set()),
    "engine_preemptions": (C, {"replica"}),
    "engine_prefix_queries": (C, {"replica"}),
    "engine_prefix_hits": (C, {"replica"}),
    "engine_restarts": (C, {"replica"}),
    "engine_spec_accept_length": (G, {"replica"}),
    "engine_series_missing": (G, {"replica"}),
    "engine_info": (G, {"replica", "engine", "version", "model"}),
    "connector_limit": (G, set()),
    "connector_connections": (G, {"replica", "state"}),
    "connector_waiting": (G, set()),
    "queue_seconds": (H, {"model"}),
    "connect_seconds": (H, {"replica"}),
    "ttft_seconds": (H, {"model"}),
    "answer_ttft_seconds": (H, {"model"}),
    "upstream_ttft_seconds": (H, {"replica"}),
    "itl_seconds": (H, {"replica"}),
    "request_seconds": (H, {"endpoint", "outcome"}),
    "attempts": (C, {"replica", "result"}),
    "ejections": (C, {"replica", "reason"}),
    "retries": (C, {"reason"}),
    "shed": (C, {"reason"}),
    "client_gone": (C, {"stage"}),
    "affinity": (C, {"policy", "result"}),
    "affinity_memory_entries": (G, {"model"}),
    "affinity_memory_bytes": (G, {"model"}),
    "affinity_forgotten": (C, {"model", "reason"}),
    "affinity_cached_characters": (C, {"policy"}),
    "shadow": (C, {"policy", "result"}),
    "shadow_choices": (C, {"policy", "result"}),
    "shadow_cached_characters": (C, {"policy"}),
    "routed_characters": (C, {"policy", "replica"}),
    "tokens": (C, {"model", "kind"}),
    "replica_state": (G, {"replica", "state"}),
    "replica_weight": (G, {"replica"}),
    "build_info": (G, {"version"}),
    "config_reload_success": (G, set()),
    "event_loop_lag_seconds": (G, set()),
}
LABELS = {
    *("replica", "model", "endpoint", "stage", "outcome", "reason", "policy", "result", "state", "role"),
    *("kind", "le"),
}
INFO = {"build_info": {"version"}, "engine_info": {"version", "engine"}}
"""Labels that stand on information gauges only."""

WITHOUT_UNIT = re.compile(
    r".*_(length|weight|state|limit|limited|info|success|missing|waiting|running|entries)"
)


@pytest.fixture
def full(watched: Watched) -> Watched:
    """Something is counted under every name."""
    for replica in watched.fleet:
        replica.engine = "vllm"
        replica.engine_version = "1.0"
        replica.take(
            EngineReading(
                running=1,
                waiting=2,
                kv_usage=0.5,
                preemptions=3,
                prefix_queries=100,
                prefix_hits=40,
                spec_accept_length=2.5,
                model="m",
            ),
            watched.clock(),
        )
    ledger = watched.fleet.ledger
    ledger.finished.add(("/v1/chat/completions", "m1", "a", "ok"))
    ledger.attempts.add(("a", "ok"))
    ledger.ejections.add(("a", "http_500"))
    ledger.retries.add(("connect_failed",))
    ledger.client_gone.add(("streaming",))
    metrics = watched.metrics
    metrics.shed.add(("queue_full",))
    metrics.cached_characters.add(("random",), 10)
    metrics.shadow.add(("random", "hit"))
    metrics.shadow_choices.add(("random", "same"))
    metrics.shadow_cached_characters.add(("random",), 10)
    metrics.routed_characters.add(("random", "a"), 100)
    watched.metrics.gaps.of(("a",)).observe(0.02)
    exchange = an_exchange(
        model="m1",
        replica="a",
        outcome="ok",
        reasoned=True,
        prompt_tokens=5,
        cached_tokens=1,
        completion_tokens=7,
        received_at=1000.1,
        leased_at=1000.2,
        sent_at=1000.3,
        first_content_at=1000.5,
        first_answer_at=1000.6,
        ended_at=1001.0,
    )
    for take in (watched.metrics.first_content, watched.metrics.first_answer, watched.metrics.observe):
        take(exchange)
    return watched


def test_the_page_has_the_names_of_the_contract_and_no_others(full: Watched) -> None:
    assert set(full.families()) == set(CONTRACT)


@pytest.mark.parametrize("name", CONTRACT)
def test_a_metric_has_its_type_and_its_labels(full: Watched, name: str) -> None:
    kind, labels = CONTRACT[name]
    family = full.families()[name]

    assert family.type == kind
    assert family.samples
    for sample in family.samples:
        assert set(sample.labels) - {"le"} == labels
    assert family.documentation


def test_only_labels_of_the_list_are_used(full: Watched) -> None:
    for name, family in full.families().items():
        for sample in family.samples:
            assert set(sample.labels) <= LABELS | INFO.get(name, set()), name


def test_every_series_carries_the_prefix_and_its_suffix(full: Watched) -> None:
    for family in full.families().values():
        for sample in family.samples:
            assert sample.name.startswith("replicarouter_")
            if family.type == C:
                assert sample.name.endswith("_total")
            elif family.type == H:
                assert re.fullmatch(r".*_seconds_(bucket|sum|count)", sample.name)
            else:
                assert not sample.name.endswith(("_total", "_count", "_sum", "_bucket"))


def test_gauges_of_a_quantity_name_their_unit(full: Watched) -> None:
    for name, family in full.families().items():
        if family.type == G and not name.startswith(("requests_", "connector_")):
            assert name.endswith(("_seconds", "_bytes", "_ratio")) or WITHOUT_UNIT.fullmatch(name), name


def test_no_created_series_are_written(full: Watched) -> None:
    assert "_created" not in full.page()


def test_a_histogram_has_at_most_twelve_buckets_that_add_up(full: Watched) -> None:
    for name, family in full.families().items():
        if family.type != H:
            continue
        buckets = [sample for sample in family.samples if sample.name.endswith("_bucket")]
        series: dict[tuple[tuple[str, str], ...], list[float]] = {}
        for sample in buckets:
            key = tuple(sorted(item for item in sample.labels.items() if item[0] != "le"))
            series.setdefault(key, []).append(sample.value)
        assert series
        for values in series.values():
            assert len(values) <= 12, name
            assert values == sorted(values)
        assert {sample.labels["le"] for sample in buckets} >= {"+Inf"}


# Gauges at zero


def test_gauges_exist_at_zero_for_every_replica_stage_and_model(watch: Callable[..., Watched]) -> None:
    watched = watch(a_fleet("a", "b", models=("m1", "m2")))

    assert watched.samples("requests_queued") == {("m1",): 0, ("m2",): 0}
    assert watched.samples("requests_outstanding") == {
        (replica, stage): 0 for replica in "ab" for stage in ("connecting", "sent", "streaming")
    }
    assert watched.samples("connector_connections") == {
        (replica, state): 0 for replica in "ab" for state in ("busy", "idle")
    }
    assert watched.samples("engine_restarts_total") == {("a",): 0, ("b",): 0}
    for name in ("requests_receiving", "connector_waiting", "proxy_limited"):
        assert watched.samples(name) == {(): 0}


def test_a_router_without_a_model_yet_has_a_page(watch: Callable[..., Watched]) -> None:
    watched = watch(a_fleet("a", models=(), ready=False))

    assert watched.samples("requests_queued") == {}
    assert watched.samples("replica_state")[("a", "loading")] == 1


# Values


def test_counts_are_read_from_the_ledger(watched: Watched) -> None:
    ledger = watched.fleet.ledger
    _, second = watched.fleet
    ledger.cells[second.row + Stage.CONNECTING] = 1
    ledger.cells[second.row + Stage.SENT] = 2
    ledger.cells[second.row + Stage.STREAMING] = 3
    ledger.cells[second.row + OUTSTANDING] = 6
    ledger.receiving, ledger.waiting_for_slot = 4, 5
    ledger.queued["m1"] = 6
    ledger.connections_of(second.row).open = 9
    ledger.connections_of(second.row).busy = 7

    outstanding = watched.samples("requests_outstanding")
    assert [outstanding["b", stage] for stage in ("connecting", "sent", "streaming")] == [1, 2, 3]
    assert watched.samples("requests_receiving") == {(): 4}
    assert watched.samples("connector_waiting") == {(): 5}
    assert watched.samples("requests_queued") == {("m1",): 6}
    assert watched.samples("connector_connections") == {
        ("a", "busy"): 0,
        ("a", "idle"): 0,
        ("b", "busy"): 7,
        ("b", "idle"): 2,
    }


def test_a_connection_that_closes_under_a_request_is_not_idle(watched: Watched) -> None:
    counts = watched.fleet.ledger.connections_of(0)
    counts.open, counts.busy = 0, 1
    assert watched.samples("connector_connections")["a", "idle"] == 0


def test_received_counts_what_is_in_flight_too(watched: Watched) -> None:
    ledger = watched.fleet.ledger
    ledger.in_flight["u"] = an_exchange()
    ledger.finished.add(("/v1/chat/completions", "m1", "a", "ok"), 2)

    assert watched.samples("requests_received_total") == {("/v1/chat/completions",): 3}
    assert watched.samples("requests_total") == {("/v1/chat/completions", "m1", "ok", "a"): 2}


@pytest.mark.parametrize("state", [State.LOADING, State.READY, State.UNHEALTHY])
def test_a_replica_is_in_one_state(watch: Callable[..., Watched], state: State) -> None:
    watched = watch(a_fleet("a", ready=False))
    (replica,) = watched.fleet
    if state is not State.LOADING:
        watched.fleet.tell(replica, Event.PASSED, "")
    if state is State.UNHEALTHY:
        watched.fleet.tell(replica, Event.FAILED, "")

    states = watched.samples("replica_state")
    assert {name for (_, name), value in states.items() if value} == {state.value}
    assert {name for _, name in states} == {"loading", "ready", "unhealthy", "ejected", "draining"}


def test_the_router_says_what_it_is(watch: Callable[..., Watched]) -> None:
    watched = watch(a_fleet(replica_settings("a", weight=2.5)))

    assert watched.samples("replica_weight") == {("a",): 2.5}
    assert watched.samples("build_info") == {("9.9",): 1}
    assert watched.samples("connector_limit") == {(): 2048}
    assert watched.samples("config_reload_success") == {(): 1}
    assert watched.samples("event_loop_lag_seconds") == {(): 0.25}


def test_a_held_request_beside_an_idle_engine_is_proxy_limited(watched: Watched) -> None:
    for replica in watched.fleet:
        replica.take(EngineReading(running=1, waiting=0), watched.clock())
    watched.fleet.ledger.hold(an_exchange(), watched.clock() - 1)

    assert watched.samples("proxy_limited") == {(): 1}


# Engines


ENGINE_GAUGES = ["engine_requests_running", "engine_requests_waiting", "engine_kv_usage_ratio"]


def test_an_engine_says_its_numbers(full: Watched) -> None:
    expected = {
        "engine_requests_running": 1,
        "engine_requests_waiting": 2,
        "engine_kv_usage_ratio": 0.5,
        "engine_preemptions_total": 3,
        "engine_prefix_queries_total": 100,
        "engine_prefix_hits_total": 40,
        "engine_spec_accept_length": 2.5,
        "engine_series_missing": 0,
        "engine_scrape_age_seconds": 0,
        "requests_unexplained": -3,
    }
    for name, value in expected.items():
        assert full.samples(name) == {("a",): value, ("b",): value}, name
    assert full.samples("engine_info") == {("vllm", "m", "a", "1.0"): 1, ("vllm", "m", "b", "1.0"): 1}


@pytest.mark.parametrize("name", [*ENGINE_GAUGES, "engine_spec_accept_length", "requests_unexplained"])
def test_an_engine_gauge_disappears_with_its_reading(full: Watched, name: str) -> None:
    full.clock.move(3 * INTERVAL)
    assert len(full.samples(name)) == 2

    full.clock.move(0.01)
    assert full.samples(name) == {}


def test_the_age_of_a_reading_goes_on_and_counters_stay(full: Watched) -> None:
    full.clock.move(100)

    assert full.samples("engine_scrape_age_seconds") == {("a",): 100, ("b",): 100}
    assert full.samples("engine_preemptions_total") == {("a",): 3, ("b",): 3}


def test_what_an_engine_does_not_say_is_not_made_up(watched: Watched) -> None:
    for replica in watched.fleet:
        replica.take(EngineReading(missing=("vllm:num_requests_running",)), watched.clock())

    for name in [*ENGINE_GAUGES, "requests_unexplained", "engine_preemptions_total"]:
        assert watched.samples(name) == {}
    assert watched.samples("engine_series_missing") == {("a",): 1, ("b",): 1}


@pytest.mark.parametrize("text", ['quote"', "back\\slash", "line\nbreak", "ü🙂", "a{b}", ""])
def test_any_text_can_be_a_model(watch: Callable[..., Watched], text: str) -> None:
    assert watch(a_fleet("a", models=(text,))).samples("requests_queued") == {(text,): 0}


def test_what_policies_remember_is_told_for_each_model(watched: Watched) -> None:
    assert watched.samples("affinity_memory_entries") == {("m1",): 10}
    assert watched.samples("affinity_memory_bytes") == {("m1",): 2000}
    forgotten = {("m1", "capacity"): 3, ("m1", "bound"): 4}
    assert watched.samples("affinity_forgotten_total") == forgotten
