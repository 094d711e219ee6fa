"""vLLM's page, recorded and in the shapes of other releases."""

from collections.abc import Callable

import pytest

from replicarouter.engines import DIALECTS, PARSER, EngineReading


def read(page: bytes) -> EngineReading:
    return DIALECTS["vllm"].read(PARSER.parse(page))


def test_an_idle_engine_reads_as_idle(page: Callable[[str], bytes]) -> None:
    assert read(page("vllm-0.32.0-idle")) == EngineReading(
        running=0.0,
        waiting=0.0,
        kv_usage=0.0,
        preemptions=0.0,
        prefix_queries=0.0,
        prefix_hits=0.0,
        spec_accept_length=None,
        steps=0.0,
        start_time=1.79595150647e9,
        kv_capacity=131072.0,
        model="tiny",
        cache_dtype="auto",
        missing=(),
    )


def test_an_engine_under_load_tells_its_counts(page: Callable[[str], bytes]) -> None:
    reading = read(page("vllm-0.32.0-under-load"))

    assert (reading.running, reading.waiting) == (2.0, 6.0)
    assert (reading.prefix_queries, reading.prefix_hits) == (4329.0, 1664.0)
    assert reading.kv_usage == 0.005862237420615535
    assert reading.steps == 178.0


def test_data_parallel_engines_are_summed_and_the_fullest_gives_the_kv_usage(
    page: Callable[[str], bytes],
) -> None:
    reading = read(page("vllm-0.32.0-data-parallel-2"))

    assert (reading.running, reading.waiting) == (4.0, 2.0)
    assert reading.prefix_queries == 24.0
    assert reading.steps == 587.0 + 2839.0
    assert reading.kv_usage == 0.07436399217221135
    assert reading.kv_capacity == 2 * 512 * 32, "each line tells the blocks of both engines"


def test_names_of_older_releases_are_accepted() -> None:
    reading = read(
        b'vllm:gpu_cache_usage_perc{model_name="m"} 0.5\n'
        b'vllm:gpu_prefix_cache_queries_total{model_name="m"} 40\n'
        b'vllm:gpu_prefix_cache_hits_total{model_name="m"} 10\n'
    )

    assert (reading.kv_usage, reading.prefix_queries, reading.prefix_hits) == (0.5, 40.0, 10.0)
    assert "vllm:kv_cache_usage_perc" not in reading.missing


def test_a_metric_exported_under_its_old_and_new_name_counts_once() -> None:
    reading = read(b"vllm:gpu_prefix_cache_queries_total 40\nvllm:prefix_cache_queries_total 41\n")

    assert reading.prefix_queries == 41.0


def test_accept_length_is_the_accepted_tokens_of_a_draft_and_the_models_own() -> None:
    reading = read(
        b'vllm:spec_decode_num_accepted_tokens_total{engine="0"} 120\n'
        b'vllm:spec_decode_num_accepted_tokens_total{engine="1"} 30\n'
        b'vllm:spec_decode_num_drafts_total{engine="0"} 60\n'
        b'vllm:spec_decode_num_drafts_total{engine="1"} 40\n'
    )

    assert reading.spec_accept_length == 2.5


def test_accept_length_is_unknown_before_the_first_draft() -> None:
    reading = read(b"vllm:spec_decode_num_accepted_tokens_total 0\nvllm:spec_decode_num_drafts_total 0\n")

    assert reading.spec_accept_length is None


def test_an_engine_that_speculates_tells_what_it_drafts_and_what_comes_of_it(
    page: Callable[[str], bytes],
) -> None:
    """Recorded with n-gram speculation of four tokens."""
    reading = read(page("vllm-0.32.0-speculation"))

    assert reading.spec_draft_length == 144 / 36
    assert reading.spec_accept_length == 1 + 15 / 36


def test_draft_length_is_what_was_drafted_for_a_step() -> None:
    reading = read(
        b'vllm:spec_decode_num_draft_tokens_total{engine="0"} 180\n'
        b'vllm:spec_decode_num_draft_tokens_total{engine="1"} 120\n'
        b'vllm:spec_decode_num_drafts_total{engine="0"} 60\n'
        b'vllm:spec_decode_num_drafts_total{engine="1"} 40\n'
    )

    assert reading.spec_draft_length == 3.0


@pytest.mark.parametrize(
    "page",
    [
        b"vllm:spec_decode_num_draft_tokens_total 0\nvllm:spec_decode_num_drafts_total 0\n",
        b"vllm:spec_decode_num_draft_tokens_total 5\n",
        b"vllm:spec_decode_num_drafts_total 5\n",
    ],
)
def test_draft_length_is_unknown_before_the_first_draft(page: bytes) -> None:
    assert read(page).spec_draft_length is None


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        ('block_size="16",cache_dtype="fp8_e4m3"', "fp8_e4m3"),
        ('block_size="16"', ""),
        ('cache_dtype=""', ""),
        (f'cache_dtype="{"x" * 5000}"', "x" * 64),
    ],
)
def test_what_the_cache_holds_is_read_from_a_label(labels: str, kind: str) -> None:
    assert read(f"vllm:cache_config_info{{{labels}}} 1.0\n".encode()).cache_dtype == kind


def test_a_series_that_is_not_a_number_is_missing() -> None:
    reading = read(b"vllm:num_requests_running NaN\nvllm:num_requests_waiting 3\n")

    assert reading.running is None
    assert reading.waiting == 3.0
    assert "vllm:num_requests_running" in reading.missing
    assert "vllm:num_requests_waiting" not in reading.missing


@pytest.mark.parametrize(
    ("labels", "capacity"),
    [
        ('block_size="16",num_gpu_blocks="1000"', 16000.0),
        ('block_size="16",kv_cache_size_tokens="None",num_gpu_blocks="1000"', 16000.0),
        ('block_size="16",kv_cache_size_tokens="12000",num_gpu_blocks="1000"', 12000.0),
        ('block_size="None",num_gpu_blocks="1000"', None),
        ('block_size="16",num_gpu_blocks="None"', None),
        ('cache_dtype="auto"', None),
    ],
)
def test_capacity_is_read_from_labels_that_may_say_none(labels: str, capacity: float | None) -> None:
    assert read(f"vllm:cache_config_info{{{labels}}} 1.0\n".encode()).kv_capacity == capacity


@pytest.mark.parametrize("name", ["block_size", "num_gpu_blocks", "kv_cache_size_tokens"])
@pytest.mark.parametrize("number", ["9" * 16, "9" * 401, "9" * 5000, "-16", "+16", "1e9", "\u00b2", ""])
def test_a_number_that_no_cache_can_have_is_unknown(name: str, number: str) -> None:
    known = {"block_size": "16", "num_gpu_blocks": "1000", "kv_cache_size_tokens": "None"}
    labels = ",".join(f'{key}="{value}"' for key, value in {**known, name: number}.items())
    reading = read(f"vllm:num_requests_running 2\nvllm:cache_config_info{{{labels}}} 1.0\n".encode())
    assert reading.running == 2.0
    assert reading.kv_capacity == (16000.0 if name == "kv_cache_size_tokens" else None)


def test_blocks_of_older_releases_count_once_for_all_engines() -> None:
    line = b'vllm:cache_config_info{block_size="16",engine="%d",num_gpu_blocks="1000"} 1.0\n'
    assert read(line % 0 + line % 1).kv_capacity == 16000.0
