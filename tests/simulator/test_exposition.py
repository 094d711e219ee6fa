"""The page is compared with one recorded from vLLM 0.32.0, and read by the router's own dialect."""

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from replicarouter.engines import DIALECTS, PARSER
from replicarouter.simulator.exposition import MetricsPage
from replicarouter.simulator.kv_blocks import KvBlocks
from replicarouter.simulator.measures import Measures
from replicarouter.simulator.options import EngineOptions
from replicarouter.simulator.profiles import PROFILES
from replicarouter.simulator.scheduler import Scheduler
from replicarouter.simulator.sequences import Sequence
from replicarouter.simulator.speculation import Speculation

RECORDED = Path(__file__).parents[1] / "engines" / "data" / "vllm-0.32.0-under-load.txt"


class Deaf:
    def token(self) -> None: ...

    def finished(self) -> None: ...


@pytest.fixture
def page() -> str:
    """A page with one sequence running, one waiting and one done."""
    return rendered(EngineOptions(model='si"m', max_num_seqs=1, kv_blocks=100))


def rendered(options: EngineOptions) -> str:
    drafted = options.speculative_tokens
    scheduler = Scheduler(
        PROFILES["instant"],
        max_num_seqs=1,
        blocks=KvBlocks(options.kv_blocks, options.block_size),
        measures=Measures(),
        speculation=Speculation(drafted, options.acceptance) if drafted else None,
    )
    for limit in (2, 8, 8):
        scheduler.submit(Sequence(prompt_tokens=20, limit=limit, listener=Deaf()), 1.0)
    for now in (2.0, 3.0, 4.0):
        scheduler.begin_step(now)
        scheduler.finish_step(now)
    return MetricsPage(options, scheduler, 1234.5).render().decode()


def samples(text: str) -> dict[str, set[frozenset[str]]]:
    """Sample name → the label names it comes with."""
    found: dict[str, set[frozenset[str]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).add(frozenset(sample.labels))
    return found


def test_names_and_labels_are_those_of_the_recorded_page(page: str) -> None:
    recorded, ours = samples(RECORDED.read_text()), samples(page)
    info = "vllm:cache_config_info"
    assert next(iter(ours.pop(info))) <= next(iter(recorded.pop(info)))
    for name, labels in ours.items():
        assert recorded[name] == labels, name


def test_types_and_buckets_are_those_of_the_recorded_page(page: str) -> None:
    recorded = {f.name: f for f in text_string_to_metric_families(RECORDED.read_text())}
    for family in text_string_to_metric_families(page):
        twin = recorded[family.name]
        assert twin.type == family.type, family.name
        bounds = [s.labels["le"] for s in family.samples if s.name.endswith("_bucket")]
        assert bounds == [s.labels["le"] for s in twin.samples if s.name.endswith("_bucket")]


def test_the_dialect_for_vllm_reads_everything(page: str) -> None:
    dialect = DIALECTS["vllm"]
    reading = dialect.read(PARSER.parse(page.encode()))
    assert reading.missing == ()
    assert (reading.running, reading.waiting) == (1, 1)
    assert reading.kv_usage == pytest.approx(0.02)
    assert (reading.steps, reading.start_time) == (3, 1234.5)
    assert (reading.prefix_queries, reading.prefix_hits) == (40, 0)
    assert reading.kv_capacity == 1600
    assert reading.model == 'si"m'


def test_histograms_are_cumulative(page: str) -> None:
    (family,) = (
        f for f in text_string_to_metric_families(page) if f.name == "vllm:e2e_request_latency_seconds"
    )
    values = {s.labels.get("le", s.name): s.value for s in family.samples}
    assert values["1.5"] == 0
    assert values["2.0"] == values["+Inf"] == 1
    assert values["vllm:e2e_request_latency_seconds_sum"] == 2.0


def test_speculation_has_counters_of_its_own(page: str) -> None:
    """Names and labels as in vLLM's documentation of its metrics; there are none without it."""
    options = EngineOptions(max_num_seqs=1, kv_blocks=100, speculative_tokens=2, acceptance=1.0)
    families = {f.name: f for f in text_string_to_metric_families(rendered(options))}
    spec = {name: family for name, family in families.items() if "spec_decode" in name}
    values = {name: [sample.value for sample in family.samples] for name, family in spec.items()}
    prefix = "vllm:spec_decode_num_"
    assert values == {
        f"{prefix}drafts": [1],
        f"{prefix}draft_tokens": [2],
        f"{prefix}accepted_tokens": [2],
        f"{prefix}accepted_tokens_per_pos": [1, 1],
    }
    positions = [sample.labels["position"] for sample in spec[f"{prefix}accepted_tokens_per_pos"].samples]
    assert positions == ["0", "1"]
    assert {family.type for family in spec.values()} == {"counter"}
    assert "spec_decode" not in page


def test_page_can_lack_families(page: str) -> None:
    lacking = ("vllm:num_requests_waiting", "vllm:iteration_tokens_total")
    text = rendered(EngineOptions(model='si"m', max_num_seqs=1, kv_blocks=100, without_metrics=lacking))
    assert set(samples(page)) - set(samples(text)) == {
        "vllm:num_requests_waiting",
        *(f"vllm:iteration_tokens_total_{part}" for part in ("bucket", "count", "sum")),
    }
    reading = DIALECTS["vllm"].read(PARSER.parse(text.encode()))
    assert reading.missing == ("vllm:num_requests_waiting", "vllm:iteration_tokens_total_count")


def test_family_that_no_page_has_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^without_metrics is \['vllm:nothing'\]; accepted: "):
        rendered(EngineOptions(without_metrics=("vllm:nothing",)))


def test_dtype_of_the_cache_is_told() -> None:
    assert 'cache_dtype="fp8"' in rendered(EngineOptions(kv_cache_dtype="fp8"))
