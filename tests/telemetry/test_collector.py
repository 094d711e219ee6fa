"""The metrics page: names, labels and values as the contract has them."""

import re
from collections.abc import Callable

import pytest

from tests.scene import a_fleet
from tests.telemetry.conftest import Watched

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
    "engine_spec_draft_length": (G, {"replica"}),
    "engine_series_absent": (G, {"replica", "kind"}),
    "engine_steps": (C, {"replica"}),
    "engine_cache_dtype_info": (G, {"replica", "kind"}),
    "engine_max_length_tokens": (G, {"replica"}),
    "client_connections": (G, set()),
    "queue_limit": (G, set()),
    "queue_timeout_seconds": (G, set()),
    "held_seconds": (G, set()),
    "connector_limit": (G, set()),
    "connector_limit_per_replica": (G, set()),
    "connector_connections": (G, {"replica", "state"}),
    "connector_waiting": (G, set()),
    "queue_seconds": (H, {"model"}),
    "connect_seconds": (H, {"replica"}),
    "ttft_seconds": (H, {"model"}),
    "answer_ttft_seconds": (H, {"model"}),
    "upstream_ttft_seconds": (H, {"replica"}),
    "itl_seconds": (H, {"replica"}),
    "request_seconds": (H, {"endpoint", "outcome"}),
    "answers": (C, {"replica", "kind"}),
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
    "replica_outstanding_limit": (G, {"replica"}),
    "replica_max_num_seqs": (G, {"replica"}),
    "replica_stalled": (G, {"replica"}),
    "replica_silence_seconds": (G, {"replica"}),
    "policy_info": (G, {"model", "policy"}),
    "build_info": (G, {"version"}),
    "config_reload_success": (G, set()),
    "time_seconds": (G, set()),
    "event_loop_lag_seconds": (G, set()),
    "process_cpu_seconds": (C, set()),
    "process_open_fds": (G, set()),
    "process_max_fds": (G, set()),
    "process_resident_memory_bytes": (G, set()),
    "process_virtual_memory_bytes": (G, set()),
    "process_start_time_seconds": (G, set()),
    "log_lines_dropped": (C, set()),
    "traces_dropped": (C, set()),
    "workers": (G, set()),
    "worker_restarts": (C, set()),
}
LABELS = {
    *("replica", "model", "endpoint", "stage", "outcome", "reason", "policy", "result", "state", "role"),
    *("kind", "le"),
}
INFO = {"build_info": {"version"}, "engine_info": {"version", "engine"}}
"""Labels that stand on information gauges only."""

WITHOUT_UNIT = re.compile(
    r"(.*_)?(length|weight|state|limit|limited|info|success|missing|absent|waiting|running|entries|tokens|fds"
    r"|stalled|seqs|connections|workers)"
)


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


def test_collectors_and_the_page_have_the_same(full: Watched) -> None:
    collected = {family.name.removeprefix("replicarouter_"): family for family in full.collector.collect()}
    for name, family in full.families().items():
        if not name.startswith("process_"):
            assert collected[name].samples == family.samples, name


def test_a_router_without_a_model_yet_has_a_page(watch: Callable[..., Watched]) -> None:
    watched = watch(a_fleet("a", models=(), ready=False))

    assert watched.samples("requests_queued") == {}
    assert watched.samples("replica_state")[("a", "loading")] == 1


@pytest.mark.parametrize("text", ['quote"', "back\\slash", "line\nbreak", "ü🙂", "a{b}", "%s", ""])
def test_any_text_can_be_a_model(watch: Callable[..., Watched], text: str) -> None:
    assert watch(a_fleet("a", models=(text,))).samples("requests_queued") == {(text,): 0}
