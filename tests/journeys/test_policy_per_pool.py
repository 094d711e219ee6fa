"""Each model's replicas may have a policy of their own."""

import pytest

from tests.fakes.client import chat
from tests.fakes.replica import FakeReplica
from tests.fakes.running import RunningRouter, StartRouter

COUNT = 6
SESSION = {"X-Session-Id": "one"}


async def start(start_router: StartRouter) -> tuple[RunningRouter, list[FakeReplica]]:
    """Two replicas of m1 with the policy of all, two of m2 with their own."""
    replicas = [FakeReplica(models=[model]) for model in ("m1", "m1", "m2", "m2")]
    router = await start_router(*replicas, policy="round-robin", pools={"m2": {"policy": "session"}})
    return router, replicas


async def test_each_pool_goes_by_its_own_policy(start_router: StartRouter) -> None:
    router, replicas = await start(start_router)
    for _ in range(COUNT):
        for model in ("m1", "m2"):
            assert (await router.ask(chat(model=model, headers=SESSION))).status == 200
    counts = [len(replica.requests) for replica in replicas]
    assert counts[:2] == [COUNT // 2] * 2
    assert sorted(counts[2:]) == [0, COUNT]


async def test_metrics_and_receipts_are_those_of_the_pools_policy(start_router: StartRouter) -> None:
    router, _ = await start(start_router)
    receipts = []
    for model in ("m1", "m2", "m2"):
        answer = await router.ask(chat(model=model, headers=SESSION))
        receipts.append(answer.head.get("x-replicarouter-affinity"))
    assert receipts == ["none", "new", "hit"]
    metrics = await router.metrics()
    series = {tuple(sorted(labels.items())): value for labels, value in metrics.series("affinity_total")}
    assert series == {
        (("policy", "round-robin"), ("result", "none")): 1,
        (("policy", "session"), ("result", "new")): 1,
        (("policy", "session"), ("result", "hit")): 1,
    }


@pytest.mark.parametrize(("model", "policy"), [("m1", "round-robin"), ("m2", "session")])
async def test_decisions_name_the_pools_policy(start_router: StartRouter, model: str, policy: str) -> None:
    router, _ = await start(start_router)
    await router.ask(chat(model=model, headers={"X-Request-Id": "mine"}))
    (decision,) = (await router.admin("/admin/decisions/mine")).json()["attempts"]
    assert (decision["model"], decision["policy"]) == (model, policy)


async def test_the_policy_of_a_model_that_nobody_serves_does_no_harm(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica(), pools={"other": {"policy": "random"}})
    assert (await router.ask(chat())).status == 200
    assert (await router.metrics()).value("affinity_total", policy="least-outstanding") == 1
