"""What the users ask."""

import json
from itertools import islice
from typing import Any

from replicarouter.loadgen.workload import CHARACTERS_PER_TOKEN, Workload, http_request
from tests.fakes.message import Head

WORKLOAD = Workload(model="m", prompt_tokens=(20, 80), answer_tokens=(100, 200))


def bodies(user: int, count: int, workload: Workload = WORKLOAD) -> list[dict[str, Any]]:
    return list(islice(workload.bodies(user), count))


def prompts(asked: list[dict[str, Any]]) -> list[str]:
    return [body["messages"][0]["content"] for body in asked]


def test_same_seed_asks_the_same() -> None:
    assert bodies(3, 20) == bodies(3, 20)
    assert bodies(3, 20) != bodies(3, 20, Workload(model="m", seed=1))


def test_no_prompt_comes_twice() -> None:
    asked = [prompt for user in range(20) for prompt in prompts(bodies(user, 20))]
    assert len(set(asked)) == len(asked)


def test_lengths_are_spread_over_their_ranges() -> None:
    asked = [body for user in range(40) for body in bodies(user, 10)]
    answers = [body["max_tokens"] for body in asked]
    assert min(answers) >= 100
    assert max(answers) <= 200
    assert len(set(answers)) > 50
    lengths = [len(prompt) / CHARACTERS_PER_TOKEN for prompt in prompts(asked)]
    assert min(lengths) >= 10
    assert max(lengths) <= 100
    assert max(lengths) - min(lengths) > 40


def test_requests_are_streaming_chats_of_the_model() -> None:
    (body,) = bodies(0, 1)
    assert body["model"] == "m"
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}


def test_http_request_is_framed_by_its_length() -> None:
    raw = http_request({"prompt": "größer"}, host="127.0.0.1:8080", path="/v1/completions")
    head_end = raw.index(b"\r\n\r\n") + 4
    head, content = Head.parse(raw[:head_end]), raw[head_end:]
    assert head.start == "POST /v1/completions HTTP/1.1"
    assert head.get("host") == "127.0.0.1:8080"
    assert head.get("content-length") == str(len(content))
    assert json.loads(content) == {"prompt": "größer"}
