"""SGLang's page. The page under `data/` is made from documentation: see its first lines."""

from collections.abc import Callable

import pytest

from replicarouter.engines import DIALECTS, PARSER, EngineReading


def read(page: bytes) -> EngineReading:
    return DIALECTS["sglang"].read(PARSER.parse(page))


def test_ranks_are_summed_and_their_members_and_priorities_are_not(
    page: Callable[[str], bytes],
) -> None:
    assert read(page("sglang-made-from-documentation")) == EngineReading(
        running=7.0,
        waiting=5.0,
        kv_usage=0.91,
        preemptions=2.0,
        prefix_queries=8128902.0,
        prefix_hits=61027.0,
        spec_accept_length=3.0,
        steps=1000.0,
        start_time=None,
        model="tiny",
        missing=(),
    )


def test_an_engine_without_ranks_in_its_labels_is_read() -> None:
    reading = read(b'sglang:num_running_reqs{model_name="m"} 2\nsglang:num_queue_reqs{model_name="m"} 1\n')

    assert (reading.running, reading.waiting, reading.model) == (2.0, 1.0, "m")
    assert reading.missing == ("sglang:token_usage",)


def test_accept_length_is_unknown_while_speculation_is_off() -> None:
    assert read(b"sglang:spec_accept_length 0.0\n").spec_accept_length is None


def test_capacity_is_summed_over_ranks() -> None:
    reading = read(
        b'sglang:max_total_num_tokens{dp_rank="0",tp_rank="0"} 400000.0\n'
        b'sglang:max_total_num_tokens{dp_rank="0",tp_rank="1"} 400000.0\n'
        b'sglang:max_total_num_tokens{dp_rank="1",tp_rank="0"} 300000.0\n'
    )

    assert reading.kv_capacity == 700000.0


@pytest.mark.parametrize("numbers", [("-5", "1"), ("0", "0"), ("1e308", "1e308"), ("NaN", "+Inf")])
def test_a_capacity_that_is_no_size_is_unknown(numbers: tuple[str, str]) -> None:
    page = "".join(
        f'sglang:max_total_num_tokens{{dp_rank="{rank}"}} {number}\n' for rank, number in enumerate(numbers)
    )
    assert read(page.encode()).kv_capacity is None
