"""Several processes on one port are one router: one count, one limit, one queue, one word to the operator."""

import asyncio
import os
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.fakes.client import Client, chat, request
from tests.fakes.message import LAST_CHUNK
from tests.fakes.replica import (
    OK,
    SHORT_STREAM,
    SSE_HEAD,
    Connection,
    FakeReplica,
    Received,
    event,
    held,
    reply,
)
from tests.fakes.running import Metrics
from tests.fakes.served import Serve, Served
from tests.fakes.wire import Wire, eventually

TWO = ("--workers", "2")
MANY = 24
"""Connections of which, as the kernel deals them out, one worker gets none once in eight million times."""

SOON = 1.0
"""Seconds in which all workers know what an operator has said: five times what is typical, and more."""


def workers_of(router: Served) -> list[int]:
    """The process ids of the workers: children of the keeper's child."""
    (nursery,) = children(router.process.pid)
    return children(nursery)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def two_workers(router: Served) -> list[int]:
    return await eventually(
        lambda: workers if len(workers := workers_of(router)) == 2 else [], "there are two workers"
    )


async def restarted(router: Served, count: int) -> None:
    """Wait until so many workers have been replaced, and listen."""
    await eventually(
        lambda: router.output.count("worker replaced") == count, f"{count} are replaced", deadline=20
    )
    page = Metrics((await router.admin("/metrics")).body.entity.decode())
    assert page.value("worker_restarts_total") == count


class Busiest:
    """A replica's script that knows the most requests it had at a time; it answers when `gate` is open."""

    def __init__(self) -> None:
        self.now = 0
        self.most = 0
        self.gate = asyncio.Event()

    async def __call__(self, _: Received, connection: Any) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        await self.gate.wait()
        await asyncio.sleep(0)
        self.now -= 1
        await connection.send(OK)


def totals(metrics: Metrics) -> dict[str, float]:
    """All that counts requests, by name and labels."""
    names = ("requests_received_total", "requests_total", "attempts_total", "answers_total")
    return {
        f"{name}{sorted(labels.items())}": value for name in names for labels, value in metrics.series(name)
    }


async def test_both_workers_serve(serve: Serve) -> None:
    replica = FakeReplica(reply(SHORT_STREAM))
    router = await serve(replica, flags=TWO)
    answers = await router.ask_each([chat() for _ in range(40)])
    assert {answer.body.raw for answer in answers} == {SHORT_STREAM.partition(b"\r\n\r\n")[2]}
    makers = {(answer.head.get("x-request-id") or "").rpartition("-")[0] for answer in answers}
    assert len(makers) == 2, "each worker has names of its own for requests"
    ledger = await router.settled()
    assert ledger["finished"]["ok"] == 40
    assert (await router.metrics()).value("workers") == 2


async def test_every_scrape_tells_the_same(serve: Serve) -> None:
    """H77: whichever worker is asked."""
    router = await serve(FakeReplica(), FakeReplica(), flags=("--workers", "4"))
    await asyncio.gather(*(router.ask_each([chat()] * 50) for _ in range(4)))
    await router.settled()
    pages = [totals(await router.metrics()) for _ in range(50)]
    assert all(page == pages[0] for page in pages)
    metrics = await router.metrics()
    assert metrics.value("requests_total", outcome="ok") == 200
    assert metrics.value("requests_received_total") == 200


async def test_a_killed_worker_is_replaced_and_no_count_is_lost(serve: Serve) -> None:
    """H77: counters never fall, what it held is free."""
    gate = asyncio.Event()
    replica = FakeReplica(reply(OK))
    router = await serve(replica, flags=TWO)
    await router.ask_each([chat()] * 30)
    await router.settled()
    before = totals(await router.metrics())
    replica.script = held(SSE_HEAD + event("1"), gate, event("2") + LAST_CHUNK)
    streams = [await router.begin(chat()) for _ in range(MANY)]
    for stream in streams:
        await stream.wire.expect(event("1"))
    await router.stage(streaming=MANY)
    workers = await two_workers(router)
    os.kill(workers[0], signal.SIGKILL)
    await restarted(router, 1)
    held_by_it = MANY - (await router.ledger())["streaming"]
    assert held_by_it
    lost = await eventually(
        lambda: cut if len(cut := [one for one in streams if one.wire.ending]) == held_by_it else [],
        "its streams are cut",
    )
    alive = await eventually(lambda: set(workers_of(router)) - {workers[0]}, "there is another")
    assert workers[1] in alive
    gate.set()
    for stream in streams:
        if stream not in lost:
            assert (await stream.answer()).body.raw.endswith(LAST_CHUNK)
    ledger = await router.settled()
    assert ledger["finished"]["ok"] == 30 + len(streams) - len(lost)
    assert ledger["finished"]["worker_lost"] == len(lost)
    after = totals(await router.metrics())
    assert {name: value for name, value in before.items() if after[name] < value} == {}
    replica.script = reply(OK)
    answers = await router.ask_each([chat()] * 20)
    assert {answer.status for answer in answers} == {200}
    await router.settled()
    assert (await router.metrics()).value("requests_outstanding") == 0


async def test_a_worker_that_is_killed_again_and_again_leaves_nothing_behind(serve: Serve) -> None:
    replica = FakeReplica(reply(OK))
    router = await serve(replica, flags=TWO)
    for round_number in range(1, 4):
        await router.ask_each([chat()] * 10)
        await router.settled()  # A client has its last byte before the worker has noted that.
        os.kill((await two_workers(router))[0], signal.SIGKILL)

        await restarted(router, round_number)
        await two_workers(router)
    ledger = await router.settled()
    assert ledger["finished"] == {"ok": 30}


async def test_a_limit_holds_for_all_workers_together(serve: Serve, tmp_path: Path) -> None:
    """H75: not for each of them."""
    scripts = [Busiest(), Busiest()]
    replicas = [FakeReplica(script) for script in scripts]
    flags = (*TWO, "--max-outstanding", "4")
    router = await serve(*replicas, flags=flags)
    asked = [asyncio.ensure_future(router.ask(chat(), 30)) for _ in range(40)]
    await router.stage(sent=8, queued=32)
    assert [script.now for script in scripts] == [4, 4]
    for script in scripts:
        script.gate.set()
    assert {(await one).status for one in asked} == {200}
    assert max(script.most for script in scripts) == 4
    await router.settled()


async def test_who_waits_is_served_by_what_ends_at_another_worker(serve: Serve) -> None:
    gates: list[asyncio.Event] = []

    async def one_by_one(_: Received, connection: Any) -> None:
        gate = asyncio.Event()
        gates.append(gate)
        await gate.wait()
        await connection.send(OK)

    router = await serve(FakeReplica(one_by_one), flags=(*TWO, "--max-outstanding", "1"))
    asked = [asyncio.ensure_future(router.ask(chat(), 30)) for _ in range(12)]
    for served in range(12):
        await eventually(lambda: len(gates) == served + 1, f"request {served} is sent")  # noqa: B023 - asked at once
        gates[served].set()
    assert {(await one).status for one in asked} == {200}


async def test_the_queue_is_one(serve: Serve, tmp_path: Path) -> None:
    config = tmp_path / "router.yaml"
    config.write_text("admission: {max_outstanding_per_replica: 1, max_queued: 3}\n")
    script = Busiest()
    router = await serve(FakeReplica(script), flags=(*TWO, "--config", str(config)))
    asked = [asyncio.ensure_future(router.ask(chat(), 30)) for _ in range(12)]
    await router.stage(sent=1, queued=3)
    await eventually(lambda: sum(one.done() for one in asked) == 8, "all others are refused")
    script.gate.set()
    answers = await asyncio.gather(*asked)
    assert Counter(answer.status for answer in answers) == {429: 8, 200: 4}


@pytest.mark.parametrize("policy", ["session", "prefix-hash"])
async def test_sessions_stick_over_workers(serve: Serve, policy: str) -> None:
    """H75: each turn on a connection of its own, which any worker may get."""
    replicas = [FakeReplica() for _ in range(4)]
    router = await serve(*replicas, flags=(*TWO, "--policy", policy))
    homes: dict[int, set[str | None]] = {}
    for _ in range(4):
        for session in range(20):
            text = f"I am number {session} " * 50
            answer = await router.ask(chat(user=f"u{session}", messages=[_says(text)]))
            homes.setdefault(session, set()).add(answer.head.get("x-replicarouter-replica"))
    assert {session: len(seen) for session, seen in homes.items() if len(seen) > 1} == {}
    assert len({replica for seen in homes.values() for replica in seen}) > 1


def _says(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


async def test_what_an_operator_says_holds_for_all_workers(serve: Serve) -> None:
    """H75: twenty reads agree, and no worker uses a replica that was removed."""
    replicas = [FakeReplica(), FakeReplica()]
    router = await serve(*replicas, flags=TWO)
    gone, left = replicas
    removed = await router.admin(f"/admin/replicas/{gone.name}", "DELETE")
    assert removed.status == 204
    lists = [(await router.admin("/admin/replicas")).json() for _ in range(20)]
    assert all([row["name"] for row in one["replicas"]] == [left.name] for one in lists)

    async def all_use_the_other() -> bool:
        before = len(gone.requests)
        answers = await router.ask_each([chat()] * 20)
        assert {answer.status for answer in answers} == {200}
        return len(gone.requests) == before

    await eventually(all_use_the_other, "no worker uses it", deadline=SOON)
    body = orjson.dumps(gone.settings)
    added = await router.admin_send(request("POST", "/admin/replicas", body))
    assert added.status == 201

    async def all_use_it_again() -> bool:
        answers = await router.ask_each([chat()] * 20)
        named = Counter(answer.head.get("x-replicarouter-replica") for answer in answers)
        return named[gone.name] > 0

    await eventually(all_use_it_again, "it is used again")


async def test_requests_of_all_workers_are_listed_and_can_be_ended(serve: Serve) -> None:
    gate = asyncio.Event()
    router = await serve(FakeReplica(held(SSE_HEAD + event("1"), gate)), flags=TWO)
    clients = [await router.begin(chat(headers={"X-Request-Id": f"r{number}"})) for number in range(8)]
    for client in clients:
        await client.wire.expect(event("1"))
    rows = (await router.admin("/admin/requests")).json()["requests"]
    assert sorted(row["id"] for row in rows) == [f"r{number}" for number in range(8)]
    for number in range(8):
        assert (await router.admin(f"/admin/requests/r{number}/cancel", "POST")).status == 202
    assert (await router.admin("/admin/requests/r0/cancel", "POST")).status == 404
    for client in clients:
        assert b"cancelled" in (await client.answer()).body.raw
    await router.settled()


async def test_failures_and_decisions_of_all_workers_are_told(serve: Serve) -> None:
    router = await serve(FakeReplica(), flags=TWO)
    await router.ask_each([chat(model="none")] * 12)

    async def told() -> bool:
        errors = (await router.admin("/admin/errors")).json()["errors"]
        return len(errors) == 12

    await eventually(told, "all failures are told")
    await router.ask_each([chat()] * MANY)

    async def decided() -> bool:
        rows = (await router.admin("/admin/decisions")).json()["decisions"]
        return len({row["request_id"].rpartition("-")[0] for row in rows}) == 2

    await eventually(decided, "decisions of both workers are told")


async def test_a_failing_replica_is_ejected_for_all(serve: Serve, tmp_path: Path) -> None:
    config = tmp_path / "router.yaml"
    config.write_text("eject: {consecutive_failures: 3, base_seconds: 60}\n")
    bad = FakeReplica(reply(b"HTTP/1.1 500 X\r\nContent-Length: 2\r\n\r\n{}"))
    good = FakeReplica()
    router = await serve(bad, good, FakeReplica(), flags=(*TWO, "--config", str(config)))

    async def ejected() -> bool:
        await router.ask_each([chat()] * 8)
        return bool((await router.ledger()).replica(bad)["state"] == "ejected")

    await eventually(ejected, "it is ejected")

    async def left_alone() -> bool:
        before = len(bad.requests)
        await router.ask_each([chat()] * 20)
        return len(bad.requests) == before

    await eventually(left_alone, "no worker uses it", deadline=SOON)


async def test_other_settings_reach_all_workers(serve: Serve, tmp_path: Path) -> None:
    config = tmp_path / "router.yaml"
    config.write_text("expose_replica: true\n")
    router = await serve(FakeReplica(), flags=(*TWO, "--config", str(config)))
    config.write_text("expose_replica: false\n")
    router.process.send_signal(signal.SIGHUP)

    async def all_follow() -> bool:
        answers = await router.ask_each([chat()] * 20)
        return all(answer.head.get("x-replicarouter-replica") is None for answer in answers)

    await eventually(all_follow, "no worker names replicas")
    assert "settings reloaded" in router.output


async def test_a_drain_lets_streams_of_all_workers_finish(serve: Serve) -> None:
    gate = asyncio.Event()
    streaming = held(SSE_HEAD + event("1"), gate, event("2") + LAST_CHUNK)
    replica = FakeReplica(streaming)
    router = await serve(replica, flags=TWO)
    clients = [await router.begin(chat()) for _ in range(8)]
    for client in clients:
        await client.wire.expect(event("1"))
    replica.script = reply(OK)
    router.process.send_signal(signal.SIGTERM)

    async def refused() -> bool:
        answers = await router.ask_each([chat()] * 8)
        return all(answer.status == 503 for answer in answers)

    await eventually(refused, "no worker takes new requests")
    gate.set()
    for client in clients:
        assert (await client.answer()).body.raw.endswith(event("2") + LAST_CHUNK)
    assert await router.exit_status() == 0


@pytest.mark.parametrize("workers", [1, 2])
async def test_what_ends_just_before_the_router_does_is_logged(serve: Serve, workers: int) -> None:
    gate = asyncio.Event()
    streaming = held(SSE_HEAD + event("1"), gate, event("2") + LAST_CHUNK)
    router = await serve(FakeReplica(streaming), flags=("--workers", str(workers)))
    clients = [await router.begin(chat()) for _ in range(8)]
    for client in clients:
        await client.wire.expect(event("1"))
    router.process.send_signal(signal.SIGTERM)
    await eventually(lambda: '"draining"' in router.output, "it drains")
    gate.set()
    for client in clients:
        await client.answer()
    assert await router.exit_status() == 0
    assert router.output.count('"event":"request"') == len(clients)


async def test_a_replica_that_streams_is_well_though_its_probes_hang(serve: Serve, tmp_path: Path) -> None:
    """It is one process that probes, and another that streams."""
    gate = asyncio.Event()

    async def drip(_: Received, connection: Connection) -> None:
        await connection.send(SSE_HEAD)
        while not gate.is_set():
            await connection.send(event("1"))
            with suppress(TimeoutError):
                await asyncio.wait_for(gate.wait(), 0.05)
        await connection.send(LAST_CHUNK)

    settings = tmp_path / "router.yaml"
    settings.write_text("health: {interval: 0.3, timeout: 0.5}")
    replica = FakeReplica(drip)
    router = await serve(replica, flags=(*TWO, "--config", str(settings)))
    client = await router.begin(chat())
    await client.wire.expect(event("1"))
    replica.probes.answering.clear()
    replica.probed.clear()

    def several_hang() -> bool:
        return [one.target for one in replica.probed].count("/health") >= 6

    await eventually(several_hang, "probes hang", deadline=20)
    (row,) = (await router.admin("/admin/replicas")).json()["replicas"]
    assert row["state"] == "ready"
    gate.set()
    await client.answer()


async def test_nothing_is_left_when_the_keeper_is_killed(serve: Serve) -> None:
    router = await serve(FakeReplica(), flags=TWO)
    (nursery,) = children(router.process.pid)
    processes = [nursery, *await two_workers(router)]
    router.process.kill()

    def gone() -> bool:
        return not any(_lives(pid) for pid in processes)

    await eventually(gone, "all processes have ended")


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


async def test_when_no_worker_can_be_started_any_more_what_runs_ends_well(serve: Serve) -> None:
    """A service manager has to start another router: the status says so."""
    gate = asyncio.Event()
    router = await serve(FakeReplica(held(SSE_HEAD + event("1"), gate, event("2") + LAST_CHUNK)), flags=TWO)
    clients = [await router.begin(chat()) for _ in range(4)]
    for client in clients:
        await client.wire.expect(event("1"))
    processes = await two_workers(router)
    (nursery,) = children(router.process.pid)
    os.kill(nursery, signal.SIGKILL)
    await eventually(lambda: '"draining"' in router.output, "it drains")
    gate.set()
    for client in clients:
        assert (await client.answer()).body.raw.endswith(event("2") + LAST_CHUNK)
    assert await router.exit_status() == 1
    assert not any(_lives(pid) for pid in processes)


async def test_a_worker_that_dies_while_all_drain_holds_nothing_up(serve: Serve) -> None:
    gate = asyncio.Event()
    router = await serve(FakeReplica(held(SSE_HEAD + event("1"), gate, event("2") + LAST_CHUNK)), flags=TWO)
    clients = [await router.begin(chat()) for _ in range(8)]
    for client in clients:
        await client.wire.expect(event("1"))
    workers = await two_workers(router)
    router.process.send_signal(signal.SIGTERM)
    await eventually(lambda: '"draining"' in router.output, "it drains")
    os.kill(workers[0], signal.SIGKILL)
    await eventually(lambda: any(one.wire.ending for one in clients), "its streams are cut")
    gate.set()
    assert await router.exit_status() == 0
    assert "background task failed" not in router.output


@pytest.mark.parametrize("stopped", ["nursery", "worker"])
async def test_who_is_stopped_does_not_keep_the_others_from_ending(serve: Serve, stopped: str) -> None:
    router = await serve(FakeReplica(), flags=TWO)
    (nursery,) = children(router.process.pid)
    processes = [nursery, *await two_workers(router)]
    os.kill(processes[0 if stopped == "nursery" else 1], signal.SIGSTOP)
    router.process.terminate()
    await eventually(lambda: '"draining"' in router.output, "it drains")
    router.process.terminate()
    assert await router.exit_status() in {0, 1}, "0 where it has drained before the second signal came"
    await eventually(lambda: not any(_lives(pid) for pid in processes), "all processes have ended")


async def test_a_second_router_does_not_share_the_port(serve: Serve) -> None:
    first = await serve(FakeReplica(), flags=TWO)
    second = await serve(FakeReplica(), flags=(*TWO, "--port", str(first.port)), up=False)
    assert await second.exit_status() == 1
    assert "port in use" in second.output


async def test_ten_thousand_requests_are_counted_once_each(serve: Serve) -> None:
    scripts = [Busiest() for _ in range(4)]
    for script in scripts:
        script.gate.set()
    replicas = [FakeReplica(script) for script in scripts]
    router = await serve(*replicas, flags=(*TWO, "--max-outstanding", "8", "--log-level", "error"))

    async def user(client: Client, count: int) -> Counter[int]:
        seen: Counter[int] = Counter()
        for _ in range(count):
            await client.send(chat())
            seen[(await client.answer(60)).status] += 1
        return seen

    clients = [await router.connect() for _ in range(50)]
    seen = await asyncio.gather(*(user(client, 200) for client in clients))
    assert sum(seen, Counter()) == {200: 10_000}
    assert max(script.most for script in scripts) <= 8
    ledger = await router.settled(30)
    assert ledger["received_total"] == 10_000
    assert ledger.finished == {"ok": 10_000}
    assert sum(len(replica.requests) for replica in replicas) == 10_000
    metrics = await router.metrics()
    assert metrics.value("requests_total") == metrics.value("requests_received_total") == 10_000
    assert all(isinstance(client.wire, Wire) and not client.wire.ending for client in clients)
