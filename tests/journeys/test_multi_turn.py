"""Conversations of several turns, many at a time, over simulated engines that keep prefixes cached."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from benchmarks.multi_turn_account import CacheCounts, hit_share, stuck_share
from benchmarks.multi_turn_users import Crowd, Shape, Turn
from replicarouter.engines import DIALECTS, PARSER
from replicarouter.simulator import EngineOptions, SimulatedEngine, start_engines
from tests.fakes.client import Client, request
from tests.fakes.running import Metrics, RunningRouter, StartRouter
from tests.fakes.wire import eventually

REPLICAS, CONVERSATIONS, TURNS = 8, 40, 3
KEYED = ("session", "prefix-hash")
STICKY = (*KEYED, "prefix-cache")

SPEED = 20.0
"""Steps of half a millisecond: answers overlap, as they do in front of real engines."""

MOST = 0.75
"""Of the follow-ups: where only five conversations share a replica, one of them may well find a sixth more
than a quarter above the mean. Usual are nine of ten; with round robin one of five meets its replica again."""


@dataclass(frozen=True, slots=True)
class Talk:
    """What came of all conversations, by their users, the engines' own pages and the router's."""

    turns: Sequence[Turn]
    engines: Sequence[CacheCounts]
    router: Metrics

    @property
    def hits(self) -> float:
        """Prompt tokens that the engines found in their caches."""
        return sum(one.hits for one in self.engines)


async def counts(engine: SimulatedEngine) -> CacheCounts:
    client = await Client.connect(engine.port)
    page = (await client.ask(request("GET", "/metrics"))).body.entity
    await client.closed()
    reading = DIALECTS["vllm"].read(PARSER.parse(page))
    assert reading.prefix_queries is not None
    assert reading.prefix_hits is not None
    return CacheCounts(reading.prefix_queries, reading.prefix_hits)


async def converse(router: RunningRouter, *, says_who: bool) -> Sequence[Turn]:
    """All conversations at once; no request may fail."""
    shape = Shape(system_tokens=100, user_tokens=200, answer_tokens=16, says_who=says_who)
    crowd = Crowd(router.port, CONVERSATIONS, shape)
    try:
        await crowd.go_on(TURNS)
    finally:
        crowd.close()
    assert len(crowd.turns) == CONVERSATIONS * TURNS
    assert {turn.failure for turn in crowd.turns} == {None}
    return crowd.turns


async def talk(start_router: StartRouter, policy: str) -> Talk:
    """All conversations with fresh engines behind a router with this policy."""
    engines = await start_engines(EngineOptions(speed=SPEED), REPLICAS)
    try:
        router = await start_router(*(engine.url for engine in engines), ready=REPLICAS, policy=policy)
        turns = await converse(router, says_who=policy == "session")
        counted = [await counts(engine) for engine in engines]
        hits = sum(one.hits for one in counted)

        async def shown() -> bool:
            return (await router.metrics()).value("engine_prefix_hits_total") == hits

        await eventually(shown, f"the router shows the engines' {hits:g} hits")
        await router.settled()
        return Talk(turns, counted, await router.metrics())
    finally:
        await asyncio.gather(*(engine.stop() for engine in engines))


@pytest.mark.parametrize("policy", STICKY)
async def test_follow_ups_meet_the_cache_that_their_conversation_left(
    start_router: StartRouter, policy: str
) -> None:
    plain, sticky = await talk(start_router, "round-robin"), await talk(start_router, policy)
    assert stuck_share(sticky.turns) >= MOST > 2 * stuck_share(plain.turns)
    assert hit_share(sticky.engines) > 1.5 * hit_share(plain.engines)


@pytest.mark.parametrize("policy", STICKY)
async def test_cached_tokens_are_the_same_to_users_engines_and_router(
    start_router: StartRouter, policy: str
) -> None:
    one = await talk(start_router, policy)
    assert one.hits > 0
    assert sum(turn.cached_tokens for turn in one.turns) == one.hits
    assert one.router.value("tokens_total", kind="cached") == one.hits


@pytest.mark.parametrize("policy", KEYED)
async def test_receipt_tells_which_follow_up_met_its_conversations_replica(
    start_router: StartRouter, policy: str
) -> None:
    one = await talk(start_router, policy)
    homes = {turn.conversation: turn.replica for turn in one.turns if turn.number == 1}
    for turn in one.turns:
        if turn.number == 1:
            assert turn.affinity == "new"
        else:
            assert turn.affinity == ("hit" if turn.replica == homes[turn.conversation] else "spill")
