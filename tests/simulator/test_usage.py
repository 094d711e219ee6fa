from replicarouter.simulator.usage import Usage


def test_usage_has_the_names_and_the_sum_of_the_api() -> None:
    assert Usage(prompt=10, cached=4, created=3, completion=5, reasoning=2).as_json() == {
        "prompt_tokens": 10,
        "total_tokens": 15,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 4, "created_cache_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
