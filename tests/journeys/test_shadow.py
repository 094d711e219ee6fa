"""A policy asked beside the real one: told in metrics and decisions, and nobody else notices it."""

import asyncio

import pytest

from replicarouter.policies import POLICIES
from tests.fakes.client import chat
from tests.fakes.message import LAST_CHUNK
from tests.fakes.replica import SSE_HEAD, FakeReplica, event, held
from tests.fakes.running import StartRouter

COUNT = 12


async def test_requests_go_where_they_would_go_without_it(start_router: StartRouter) -> None:
    replicas = [FakeReplica() for _ in range(3)]
    router = await start_router(*replicas, policy="round-robin", policy_options={"shadow": "power-of-two"})
    for _ in range(COUNT):
        assert (await router.ask(chat())).status == 200
    assert [len(replica.requests) for replica in replicas] == [COUNT // 3] * 3

    metrics = await router.metrics()
    assert metrics.value("shadow_total", policy="power-of-two", result="none") == COUNT
    same = metrics.value("shadow_choices_total", policy="power-of-two", result="same")
    other = metrics.value("shadow_choices_total", policy="power-of-two", result="other")
    assert same + other == COUNT
    assert metrics.value("affinity_total", policy="round-robin") == COUNT
    assert metrics.series("affinity_total", policy="power-of-two") == []


async def test_what_it_says_stands_in_the_decision(start_router: StartRouter) -> None:
    replicas = [FakeReplica() for _ in range(2)]
    router = await start_router(
        *replicas, policy="round-robin", policy_options={"shadow": "least-outstanding"}
    )
    await router.ask(chat(headers={"X-Request-Id": "mine"}))
    (decision,) = (await router.admin("/admin/decisions/mine")).json()["attempts"]
    shadow = decision["shadow"]
    assert (decision["policy"], shadow["policy"]) == ("round-robin", "least-outstanding")
    names = {replica.name for replica in replicas}
    assert shadow["chosen"] in names
    assert {one["replica"] for one in shadow["candidates"]} == names
    assert all(one["figures"]["load"] == 0 for one in shadow["candidates"])


async def test_without_one_there_are_no_series_of_it(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica())
    await router.ask(chat())
    metrics = await router.metrics()
    assert metrics.series("shadow_total") == metrics.series("shadow_choices_total") == []


@pytest.mark.parametrize("shadow", POLICIES)
async def test_any_policy_may_be_one_whatever_becomes_of_requests(
    start_router: StartRouter, shadow: str
) -> None:
    gate = asyncio.Event()
    replicas = [FakeReplica(held(SSE_HEAD + event("1"), gate, LAST_CHUNK)) for _ in range(2)]
    router = await start_router(*replicas, policy="random", policy_options={"shadow": shadow})
    clients = [await router.begin(chat()) for _ in range(8)]
    for client in clients:
        await client.wire.expect(event("1"))
    for client in clients[:4]:
        await client.closed()
    gate.set()
    for client in clients[4:]:
        assert (await client.answer()).ended == "clean"
    await router.settled()
    asked = 8 if shadow != "random" else 0
    assert (await router.metrics()).value("shadow_choices_total", policy=shadow) == asked


async def test_what_it_would_have_found_and_how_even_it_would_have_been_is_counted(
    start_router: StartRouter,
) -> None:
    """Four turns of one conversation, which round-robin takes from one replica to the other."""
    replicas = [FakeReplica() for _ in range(2)]
    router = await start_router(*replicas, policy="round-robin", policy_options={"shadow": "prefix-cache"})
    messages = [{"role": "user", "content": "0123456789 " * 300}]
    for turn in range(4):
        assert (await router.ask(chat(messages=messages))).status == 200
        messages += [
            {"role": "assistant", "content": f"answer {turn} " * 100},
            {"role": "user", "content": f"question {turn} " * 100},
        ]

    metrics = await router.metrics()
    assert metrics.value("shadow_total", policy="prefix-cache", result="new") == 1
    assert metrics.value("shadow_total", policy="prefix-cache", result="hit") == 3
    assert metrics.value("affinity_memory_entries", model="m1") > 0
    assert metrics.value("affinity_memory_bytes", model="m1") > 0
    found = metrics.value("shadow_cached_characters_total", policy="prefix-cache")
    assert found > 3 * 3000
    assert metrics.value("affinity_cached_characters_total", policy="round-robin") == 0
    real, shadow = (
        {
            labels["replica"]: value
            for labels, value in metrics.series("routed_characters_total", policy=policy)
        }
        for policy in ("round-robin", "prefix-cache")
    )
    assert real.keys() == {replica.name for replica in replicas}
    assert len(shadow) == 1
    assert sum(real.values()) == sum(shadow.values()) > found
