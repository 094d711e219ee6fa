"""Prompts of every shape find their replica, and find it again."""

import json
from collections import Counter

import orjson
import pytest

from replicarouter.protocol.endpoints import Endpoints
from tests.affinity.bodies import SHAPES, Fields, image, said
from tests.fakes.client import Answer, request
from tests.fakes.replica import FakeReplica
from tests.fakes.running import RunningRouter, StartRouter

PATHS = {
    "messages": "/v1/chat/completions",
    "prompt": "/v1/completions",
    "input": "/v1/responses",
    "text": "/generate",
    "input_ids": "/generate",
}
MULTI_PROMPTS = {"embeddings": "/v1/embeddings", "anthropic": "/v1/messages"}


def ask_with(name: str, fields: Fields) -> bytes:
    path = MULTI_PROMPTS.get(name) or next(
        (path for field, path in PATHS.items() if field in fields), "/v1/rerank"
    )
    assert Endpoints().find(path) is not None
    return request("POST", path, json.dumps(fields).encode())


async def places_of(router: RunningRouter, raw: bytes, times: int) -> Counter[str | None]:
    places: Counter[str | None] = Counter()
    for _ in range(times):
        answer: Answer = await router.ask(raw)
        assert answer.status == 200, answer.body.raw[:300]
        places[answer.head.get("x-replicarouter-replica")] += 1
    return places


@pytest.mark.parametrize("policy", ["prefix-hash", "prefix-cache", "session"])
async def test_every_shape_of_prompt_is_served_and_sticks_where_it_has_a_key(
    start_router: StartRouter, policy: str
) -> None:
    """H73"""
    replicas = [FakeReplica(name=f"b{number}") for number in range(3)]
    router = await start_router(*replicas, policy=policy)
    for name, fields in SHAPES.items():
        for model in ({}, {"model": "m1"}):
            places = await places_of(router, ask_with(name, {**fields, **model}), 6)
            if policy == "prefix-hash":
                keyless = name in ("nothing", "nulls", "no messages")
                assert len(places) == (3 if keyless else 1), name


async def test_the_same_image_of_megabytes_meets_the_same_replica(start_router: StartRouter) -> None:
    """H73"""
    replicas = [FakeReplica(name=f"b{number}") for number in range(4)]
    router = await start_router(*replicas, policy="prefix-hash")
    homes: set[str | None] = set()
    for letter in "ABCDEFGH":
        picture = image("data:image/png;base64," + "A" * 5_000_000 + letter)
        fields = {"model": "m1", "messages": [said("user", [{"type": "text", "text": "what?"}, picture])]}
        raw = request("POST", "/v1/chat/completions", orjson.dumps(fields))
        places = await places_of(router, raw, 3)
        assert len(places) == 1
        homes.update(places)
    assert len(homes) > 1, "images that differ are different conversations"
