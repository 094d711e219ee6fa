"""Conversations over two real engines: what stickiness is worth, by the engines' own counters."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.multi_turn_account import stuck_share
from benchmarks.multi_turn_users import Crowd, Shape, Turn
from replicarouter.engines import DIALECTS, PARSER
from tests.real_engine.rig import (
    HOST,
    MODEL,
    EngineFleet,
    RouterProcess,
    free_port,
    get,
    metric,
    total,
    wait_until,
)

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(240)]

SOON = 10.0
BLOCK = 32
"""Tokens of a block, of which an engine caches whole ones."""

CONVERSATIONS, TURNS = 5, 3
"""An odd number: with an even one round robin over two replicas would send every turn home."""

SHAPE = Shape(model=MODEL, system_tokens=64, user_tokens=200, answer_tokens=24)
STICKY = ("prefix-hash", "prefix-cache")


@dataclass(frozen=True, slots=True)
class Talk:
    """What came of all conversations. `queries` and `hits` are tokens by the engines' own counters,
    `cached` those that the router has counted, all of these conversations alone; `shown` are the hits
    that the router shows of each engine, `kept` those on its page."""

    turns: Sequence[Turn]
    queries: float
    hits: float
    cached: float
    shown: Mapping[int, float]
    kept: Mapping[int, float]

    @property
    def share(self) -> float:
        """Of the prompt tokens, those found in the caches."""
        return self.hits / self.queries


def queries(ports: Sequence[int]) -> float:
    return sum(total(port, "vllm:prefix_cache_queries_total") for port in ports)


def hits(port: int) -> float:
    return total(port, "vllm:prefix_cache_hits_total")


async def converse(port: int, seed: int) -> list[Turn]:
    """One request after the other, the conversations taking turns: nothing depends on time."""
    crowd = Crowd(port, CONVERSATIONS, replace(SHAPE, seed=seed))
    try:
        for _ in range(TURNS):
            for one in crowd.conversations:
                await one.take_turn(crowd.host)
    finally:
        crowd.close()
    return crowd.turns


def talk(policy: str, ports: Sequence[int], log: Path, seed: int) -> Talk:
    """All conversations through a router of their own; `seed` gives them words that no engine knows."""
    asked, found = queries(ports), sum(map(hits, ports))
    router = RouterProcess(ports, log, {"policy": policy, "health.slow_start": 0, "scrape.interval": 0.5})
    try:
        wait_until(
            lambda: all(router.state(port) == "ready" for port in ports), "both are ready", deadline=SOON
        )
        turns = asyncio.run(converse(router.port, seed))
        assert {turn.failure for turn in turns} == {None}
        expected = asked + sum(turn.prompt_tokens for turn in turns)
        wait_until(lambda: queries(ports) == expected, "the engines have counted every prompt", deadline=SOON)
        kept = {port: hits(port) for port in ports}
        shown: dict[int, float] = {}

        def seen() -> bool:
            for port in ports:
                name = "replicarouter_engine_prefix_hits_total"
                shown[port] = metric(router.port, name, replica=f"{HOST}:{port}") or 0
            return shown == kept

        wait_until(seen, f"the router shows the engines' hits, {kept}", deadline=SOON)
        wait_until(lambda: router.ledger()["accepted"] == 0, "the router has counted them all", deadline=SOON)
        cached = metric(router.port, "replicarouter_tokens_total", kind="cached") or 0
    finally:
        router.close()
    return Talk(turns, queries(ports) - asked, sum(kept.values()) - found, cached, shown, kept)


@pytest.fixture(scope="module")
def telling(fleet: EngineFleet) -> Iterator[Sequence[int]]:
    """Two servers that tell in each answer's usage how much of its prompt was cached."""
    ports = [free_port(), free_port()]
    fleet.start(ports, "--enable-prompt-tokens-details")
    yield ports
    for port in ports:
        fleet.kill(port)
        fleet.ports.remove(port)


@pytest.fixture(scope="module")
def talks(telling: Sequence[int], tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Talk]:
    """One for each policy."""
    logs = tmp_path_factory.mktemp("routers")
    return {
        policy: talk(policy, telling, logs / f"{policy}.log", seed)
        for seed, policy in enumerate(("round-robin", *STICKY))
    }


@pytest.mark.parametrize("policy", STICKY)
def test_hits_by_the_engines_own_counters_rise_with_stickiness(
    talks: Mapping[str, Talk], policy: str
) -> None:
    assert talks[policy].share > 1.5 * talks["round-robin"].share


@pytest.mark.parametrize("policy", STICKY)
def test_every_follow_up_finds_what_its_conversation_left(talks: Mapping[str, Talk], policy: str) -> None:
    turns = talks[policy].turns
    assert stuck_share(turns) == 1.0
    prompts = {(turn.conversation, turn.number): turn.prompt_tokens for turn in turns}
    for turn in turns:
        left = prompts.get((turn.conversation, turn.number - 1), 0)
        assert turn.cached_tokens >= left // BLOCK * BLOCK, turn


def test_round_robin_sends_every_follow_up_away(talks: Mapping[str, Talk]) -> None:
    """Otherwise the tests above would compare nothing."""
    places = {(turn.conversation, turn.number): turn.replica for turn in talks["round-robin"].turns}
    for (conversation, number), replica in places.items():
        assert places.get((conversation, number - 1)) != replica


@pytest.mark.parametrize("policy", STICKY)
def test_receipts_call_follow_ups_hits(talks: Mapping[str, Talk], policy: str) -> None:
    for turn in talks[policy].turns:
        assert turn.affinity == ("new" if turn.number == 1 else "hit")


@pytest.mark.parametrize("policy", ["round-robin", *STICKY])
def test_cached_tokens_are_the_same_to_the_engine_the_user_and_the_router(
    talks: Mapping[str, Talk], policy: str
) -> None:
    one = talks[policy]
    assert one.hits > 0
    assert one.hits == sum(turn.cached_tokens for turn in one.turns) == one.cached
    assert one.shown == one.kept


def test_without_a_word_from_the_engine_follow_ups_stick_as_well(fleet: EngineFleet, tmp_path: Path) -> None:
    """vLLM tells of cached tokens only when started so."""
    one = talk("prefix-cache", fleet.ports[:2], tmp_path / "router.log", seed=99)
    assert stuck_share(one.turns) == 1.0
    assert sum(turn.cached_tokens for turn in one.turns) == one.cached == 0
    left = sum(turn.prompt_tokens // BLOCK * BLOCK for turn in one.turns if turn.number < TURNS)
    assert one.hits >= left


def test_room_in_the_cache_is_read_as_the_engine_says_it(fleet: EngineFleet) -> None:
    page = get(fleet.ports[0], "/metrics")
    (said,) = [
        sample.labels
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
        if sample.name == "vllm:cache_config_info"
    ]
    reading = DIALECTS["vllm"].read(PARSER.parse(page))
    assert reading.kv_capacity == int(said["kv_cache_size_tokens"])
    assert reading.kv_capacity == int(said["num_gpu_blocks_override"]) * int(said["block_size"])
