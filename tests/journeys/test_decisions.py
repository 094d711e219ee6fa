"""Why a request went where it went: told to operators, a sample of the latest, and nothing of its content."""

import asyncio
from typing import Any

import pytest

from tests.fakes.client import chat, request
from tests.fakes.replica import OK, FakeReplica, held, reply, sized
from tests.fakes.running import RunningRouter, StartRouter

BUSY = reply(sized(b'{"error": {"message": "loading"}}', status="503 Service Unavailable"))


async def decided(router: RunningRouter, request_id: str) -> list[dict[str, Any]]:
    """The decisions about a request."""
    answer = await router.admin(f"/admin/decisions/{request_id}")
    assert answer.status == 200, answer.body.raw
    document = answer.json()
    assert document["request_id"] == request_id
    return list(document["attempts"])


async def test_a_decision_is_found_by_the_request_id_of_the_client(start_router: StartRouter) -> None:
    replicas = [FakeReplica() for _ in range(3)]
    router = await start_router(*replicas)
    answer = await router.ask(chat(headers={"X-Request-Id": "mine"}))

    (decision,) = await decided(router, "mine")
    assert decision["chosen"] == answer.head.get("x-replicarouter-replica")
    assert decision["policy"] == "least-outstanding"
    assert (decision["model"], decision["attempt"], decision["waited"]) == ("m1", 1, 0)
    assert decision["affinity"] == answer.head.get("x-replicarouter-affinity")
    assert sorted(one["replica"] for one in decision["candidates"]) == sorted(one.name for one in replicas)
    assert all(one["figures"] == {"load": 0, "cost": 1} for one in decision["candidates"])
    assert 0 <= decision["age"] < 60


async def test_a_request_without_an_id_is_found_by_the_one_it_was_given(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica())
    answer = await router.ask(chat())
    request_id = answer.head.get("x-request-id")
    assert request_id
    assert len(await decided(router, request_id)) == 1


async def test_every_attempt_is_told_of(start_router: StartRouter) -> None:
    replicas = [FakeReplica(), FakeReplica()]
    replicas[0].script = BUSY
    router = await start_router(*replicas, policy="round-robin")
    assert (await router.ask(chat(headers={"X-Request-Id": "twice"}))).status == 200

    first, second = await decided(router, "twice")
    assert (first["attempt"], first["chosen"]) == (1, replicas[0].name)
    assert (second["attempt"], second["chosen"]) == (2, replicas[1].name)
    assert second["not_candidates"] == {replicas[0].name: "tried"}


async def test_who_was_full_is_told_and_how_long_the_request_waited(start_router: StartRouter) -> None:
    gate = asyncio.Event()
    replica, other = FakeReplica(held(b"", gate, OK)), FakeReplica(held(b"", gate, OK))
    router = await start_router(replica, other, admission={"max_outstanding_per_replica": 1})
    clients = [await router.begin(chat(headers={"X-Request-Id": f"r{number}"})) for number in range(3)]
    await router.stage(sent=2, queued=1)
    gate.set()
    for client in clients:
        assert (await client.answer()).status == 200

    decisions = [await decided(router, f"r{number}") for number in range(3)]
    assert [len(one) for one in decisions] == [1, 1, 1]
    (first,), (second,), (third,) = decisions
    assert second["not_candidates"] == {first["chosen"]: "full"}
    assert third["waited"] > 0


async def test_a_replica_that_is_drained_is_no_candidate(start_router: StartRouter) -> None:
    replicas = [FakeReplica(), FakeReplica()]
    router = await start_router(*replicas)
    await router.admin(f"/admin/replicas/{replicas[0].name}/drain", "POST")
    await router.ask(chat(headers={"X-Request-Id": "one"}))
    (decision,) = await decided(router, "one")
    assert decision["not_candidates"] == {replicas[0].name: "draining"}


async def test_nothing_of_the_request_but_its_id_and_model_is_kept(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica(), api_keys={"alice": "sk-canary"}, expose_replica=True)
    headers = {
        "X-Request-Id": "secret",
        "Authorization": "Bearer sk-canary",
        "X-Session-Id": "session-canary",
        "X-Other": "header-canary",
    }
    asked = chat(headers=headers, messages=[{"role": "user", "content": "prompt-canary"}], user="user-canary")
    assert (await router.ask(asked)).status == 200
    for target in ("/admin/decisions/secret", "/admin/decisions"):
        answer = await router.admin(target)
        assert answer.status == 200
        assert b"secret" in answer.body.raw
        assert b"canary" not in answer.body.raw


async def test_the_latest_are_listed(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica())
    for number in range(3):
        await router.ask(chat(headers={"X-Request-Id": f"r{number}"}))
    rows = (await router.admin("/admin/decisions")).json()["decisions"]
    assert [row["request_id"] for row in rows] == ["r2", "r1", "r0"]
    assert {row["model"] for row in rows} == {"m1"}
    assert {row["affinity"] for row in rows} == {"none"}


@pytest.mark.parametrize(("per_second", "most"), [(0, 0), (2, 6)])
async def test_they_are_a_sample(start_router: StartRouter, per_second: int, most: int) -> None:
    """In the two seconds that forty requests may take at most."""
    router = await start_router(FakeReplica(), policy_options={"decisions_per_second": per_second})
    await router.ask_each([chat(headers={"X-Request-Id": f"r{number}"}) for number in range(40)])
    kept = (await router.admin("/admin/decisions")).json()["decisions"]
    assert min(per_second, 1) <= len(kept) <= most

    missed = next(
        f"r{number}" for number in range(40) if f"r{number}" not in {one["request_id"] for one in kept}
    )
    refused = (await router.admin(f"/admin/decisions/{missed}")).refused(404, "unknown_request")
    assert f"at most {per_second} a second" in refused["message"]
    assert "policy_options.decisions_per_second" in refused["message"]


async def test_an_id_of_odd_characters_is_found(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica())
    await router.ask(chat(headers={"X-Request-Id": "a/b c?d"}))
    document = (await router.admin("/admin/decisions/a%2Fb%20c%3Fd")).json()
    assert [one["request_id"] for one in document["attempts"]] == ["a/b c?d"]


async def test_they_need_the_token_where_there_is_one(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica(), admin={"token": "tok"})
    await router.ask(chat(headers={"X-Request-Id": "mine"}))
    for target in ("/admin/decisions", "/admin/decisions/mine"):
        assert (await router.admin_send(request("GET", target))).status == 401
    assert (await router.admin("/admin/decisions/mine")).status == 200
