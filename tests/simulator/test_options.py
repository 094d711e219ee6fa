from typing import Any

import pytest

from replicarouter.simulator.options import EngineOptions


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", -1),
        ("port", 65536),
        ("model", ""),
        ("profile", "no-such"),
        ("max_num_seqs", 0),
        ("kv_blocks", 0),
        ("block_size", 0),
        ("speed", -0.5),
        ("speed", float("inf")),
        ("speed", float("nan")),
        ("max_model_len", 1),
        ("phase", 1.0),
        ("keep_alive", 0.0),
        ("control_port", 65536),
        ("load_seconds", -1.0),
        ("max_num_queued_reqs", -1),
        ("sse_keep_alive", -1.0),
        ("version", ""),
        ("kv_cache_dtype", 'a"b'),
        ("speculative_tokens", -1),
        ("acceptance", 1.5),
        ("loading", ()),
        ("loading", ("refused", "bored")),
    ],
)
def test_value_out_of_range_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name} is .*; accepted: "):
        EngineOptions(**{name: value})


def test_context_is_no_larger_than_the_kv_cache() -> None:
    assert EngineOptions(kv_blocks=10, block_size=16).context == 160
    assert EngineOptions(max_model_len=2048).context == 2048
