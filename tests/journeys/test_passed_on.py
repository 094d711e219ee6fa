"""Large prompts that nobody has to look into go on while they arrive: as sent, slowed by their replica, sent
again elsewhere where the failure rules allow, and bounded in memory.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from replicarouter.proxy.intake import PASSED_ON
from tests.fakes.client import Client, chat_body, request
from tests.fakes.message import LAST_CHUNK, chunk
from tests.fakes.replica import (
    OK,
    Connection,
    FakeReplica,
    Received,
    reply,
    sized,
)
from tests.fakes.running import RunningRouter, StartRouter
from tests.fakes.served import Serve, Served
from tests.fakes.wire import Ending, eventually
from tests.journeys.test_large_bodies import MEGABYTE, PATH, padded
from tests.journeys.test_refusals import NEVER_EJECT, REFUSALS, STEADY
from tests.journeys.test_uploads import an_early_reader, begun, deaf_until, in_flight, split

SIZE = 2 * MEGABYTE
NAMED = {"X-Session-Id": "s1"}

PASSING = {
    "round-robin": ("round-robin", {}),
    "least-outstanding": ("least-outstanding", {}),
    "a session in a header": ("session", NAMED),
    "a conversation whose session is in a header": ("prefix-hash", NAMED),
}
LOOKED_INTO = {
    "a session that may be in the body": ("session", {}),
    "a prompt's head": ("prefix-hash", {}),
    "a prompt's blocks": ("prefix-cache", NAMED),
}


def prompt(size: int = SIZE, headers: Mapping[str, str] | None = None, *, chunked: bool = False) -> bytes:
    return request("POST", PATH, padded(size), headers, chunked=chunked)


async def half_sent(router: RunningRouter, raw: bytes) -> tuple[Client, bytes]:
    """A client that has sent the first half of a large prompt, and the rest."""
    first, rest = split(raw, SIZE // 2)
    client = await router.connect()
    client.wire.transport.write(first)
    return client, rest


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize(("policy", "headers"), PASSING.values(), ids=PASSING)
async def test_it_goes_on_before_it_is_whole(
    start_router: StartRouter, policy: str, headers: dict[str, str], chunked: bool
) -> None:
    replica = an_early_reader()
    router = await start_router(replica, policy=policy)
    client, rest = await half_sent(router, prompt(SIZE, headers, chunked=chunked))
    received = await begun(replica)
    await eventually(
        lambda: received.connection.wire.count_received > SIZE // 2 - 1000, "what has come is passed on"
    )
    await router.stage(sent=1)
    await client.send(rest)
    assert (await client.answer()).status == 200
    assert received.body == padded(SIZE)
    assert len(received.head.framing) == 1
    ledger = await router.settled()
    assert ledger.finished == {"ok": 1}


@pytest.mark.parametrize(("policy", "headers"), LOOKED_INTO.values(), ids=LOOKED_INTO)
async def test_where_a_policy_reads_it_it_is_received_first(
    start_router: StartRouter, policy: str, headers: dict[str, str]
) -> None:
    replica = an_early_reader()
    router = await start_router(replica, policy=policy)
    client, rest = await half_sent(router, prompt(SIZE, headers))
    await router.stage(receiving=1)
    await client.send(rest)
    assert (await client.answer()).status == 200
    assert replica.requests[0].body == padded(SIZE)


@pytest.mark.parametrize("why", ["pools", "aliases", "responses", "unknown model"])
async def test_what_has_to_be_known_is_waited_for(start_router: StartRouter, why: str) -> None:
    replicas = [an_early_reader(models=["m1"])]
    if why == "pools":
        replicas.append(an_early_reader(models=["m2"]))
    router = await start_router(*replicas, aliases={"other": "m1"} if why == "aliases" else {})
    path = "/v1/responses" if why == "responses" else PATH
    model = "nope" if why == "unknown model" else "m1"
    body = chat_body(model=model, pad="x" * SIZE)
    client, rest = await half_sent(router, request("POST", path, body))
    await router.stage(receiving=1)
    assert all(replica.requests == [] for replica in replicas)
    await client.send(rest)
    answer = await client.answer()
    if why == "unknown model":
        answer.refused(404, "model_not_found")
    else:
        assert answer.status == 200
        assert replicas[0].requests[0].body == body


async def test_what_is_not_large_is_received_whole_and_read(start_router: StartRouter) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    for size in (1000, PASSED_ON):
        raw = request("POST", PATH, padded(size)[:-1] + b"]")
        client = await router.begin(raw[:-10])
        await router.stage(receiving=1)
        await client.send(raw[-10:])
        (await client.answer()).refused(400, "invalid_request")
    assert replica.requests == []


async def test_the_engine_judges_what_nobody_has_looked_into(start_router: StartRouter) -> None:
    refusal = sized(b'{"error":{"message":"not JSON","code":400}}', status="400 Bad Request")
    replica = FakeReplica(reply(refusal))
    router = await start_router(replica)
    answer = await router.ask(request("POST", PATH, padded(SIZE)[:-1] + b"]"))
    assert (answer.status, answer.body.raw) == (400, refusal.partition(b"\r\n\r\n")[2])
    assert (await router.settled()).finished == {"upstream_error": 1}


async def test_connections_are_kept_behind_large_prompts(start_router: StartRouter) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    client = await router.connect()
    for size in (SIZE, 1000, SIZE, 5 * SIZE):
        assert (await client.ask(prompt(size))).status == 200
    assert len(replica.used_connections) == 1
    assert [len(received.body) for received in replica.requests] == [SIZE, 1000, SIZE, 5 * SIZE]


async def test_requests_sent_ahead_are_served_in_turn(start_router: StartRouter) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    client = await router.connect()
    sizes = [300_000, 900_000, 100, 3_000_000]
    client.wire.transport.write(b"".join(prompt(size, chunked=size == 900_000) for size in sizes))
    for _ in sizes:
        assert (await client.answer()).status == 200
    assert [received.body for received in replica.requests] == [padded(size) for size in sizes]


async def test_many_small_chunks_go_on_as_one_body(start_router: StartRouter) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    body = padded(600_000)
    client = await router.begin(request("POST", PATH, headers={"Transfer-Encoding": "chunked"}))
    pieces = [chunk(body[at : at + 97]) for at in range(0, len(body), 97)]
    client.wire.transport.write(b"".join(pieces) + LAST_CHUNK)
    assert (await client.answer()).status == 200
    assert replica.requests[0].body == body


# Again, elsewhere


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
async def test_a_refused_prompt_is_served_elsewhere(
    start_router: StartRouter, refusal: bytes, chunked: bool
) -> None:
    refusing, live = FakeReplica(reply(refusal)), FakeReplica()
    router = await start_router(refusing, live, policy="round-robin", health=STEADY, eject=NEVER_EJECT)
    answers = [await router.ask(prompt(chunked=chunked)) for _ in range(4)]
    assert [answer.status for answer in answers] == [200] * 4
    assert [received.body for received in live.requests] == [padded(SIZE)] * 4
    assert refusing.requests != []


async def test_a_prompt_whose_replica_is_gone_is_served_elsewhere(start_router: StartRouter) -> None:
    gone, live = FakeReplica(), FakeReplica()
    router = await start_router(gone, live, policy="round-robin", health=STEADY)
    await gone.stop()
    answers = await router.ask_each([prompt() for _ in range(4)])
    assert [answer.status for answer in answers] == [200] * 4
    assert [received.body for received in live.requests] == [padded(SIZE)] * 4


async def test_a_prompt_refused_while_it_arrives_is_served_elsewhere(start_router: StartRouter) -> None:
    async def refuse(_: Received, connection: Connection) -> None:
        await connection.send(REFUSALS["busy"])

    refusing, live = FakeReplica(refuse, read_bodies=False), an_early_reader()
    router = await start_router(refusing, live, policy="round-robin", health=STEADY)
    for _ in range(2):
        client, rest = await half_sent(router, prompt())
        await eventually(lambda: refusing.requests or live.requests, "it has begun")
        await client.send(rest)
        assert (await client.answer()).status == 200
    assert [received.body for received in live.requests] == [padded(SIZE)] * 2
    assert len(refusing.requests) == 1


async def test_what_could_be_sent_again_gives_way_to_who_needs_the_room(start_router: StartRouter) -> None:
    """Two prompts that wait for their answers, and a small one for which there is no other room."""
    gate = asyncio.Event()

    async def script(received: Received, connection: Connection) -> None:
        if len(received.body) > MEGABYTE:
            await gate.wait()
            await connection.send(REFUSALS["busy"])
        else:
            await connection.send(OK)

    replicas = [FakeReplica(script), FakeReplica(script)]
    most = 2 * SIZE
    router = await start_router(*replicas, max_buffered_bytes=most, health=STEADY)
    clients = [await router.begin(prompt()) for _ in range(2)]
    await router.stage(sent=2)
    assert (await router.ask(request("POST", PATH, padded(10_000)))).status == 200
    gate.set()
    answers = [await client.answer() for client in clients]
    # The one that gave way has the refusal as its answer; the other was tried once more.
    assert [answer.status for answer in answers] == [503, 503]
    assert sorted(len(replica.requests) for replica in replicas) in ([1, 3], [2, 2])
    await router.settled()


async def test_more_passes_at_once_than_could_be_held(start_router: StartRouter) -> None:
    replica = FakeReplica()
    router = await start_router(replica, max_buffered_bytes=MEGABYTE)
    answers = await router.ask_each([prompt(3 * MEGABYTE)] * 6)
    assert [answer.status for answer in answers] == [200] * 6
    assert [received.body for received in replica.requests] == [padded(3 * MEGABYTE)] * 6


# Cut short, answered early


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
async def test_a_client_that_leaves_frees_its_replica(
    start_router: StartRouter, chunked: bool, how: Ending
) -> None:
    replica = an_early_reader()
    router = await start_router(replica)
    client, _ = await half_sent(router, prompt(chunked=chunked))
    received = await begun(replica)
    await eventually(lambda: received.connection.wire.count_received > SIZE // 4, "it is on its way")
    client.leave(how)
    await received.aborted()
    assert not received.complete
    ledger = await router.settled()
    assert ledger.finished == {"client_gone": 1}
    assert ledger.replica(replica)["state"] == "ready"


async def test_a_client_that_leaves_a_deaf_replica_is_noticed(start_router: StartRouter) -> None:
    gate = asyncio.Event()
    replica = FakeReplica(deaf_until(gate), read_bodies=False)
    router = await start_router(replica)
    client = await router.connect()
    client.wire.transport.write(prompt(40 * MEGABYTE))
    received = await begun(replica)
    await eventually(lambda: client.wire.write_blocked, "the client is slowed")
    client.leave("rst")
    await router.settled()
    gate.set()
    await received.aborted()
    assert not received.complete


async def test_a_silent_client_is_given_up(start_router: StartRouter) -> None:
    replica = an_early_reader()
    router = await start_router(replica, timeouts={"client_body": 0.3})
    client, _ = await half_sent(router, prompt())
    (await client.answer()).refused(408, "request_timeout")
    await replica.requests[0].aborted()
    assert (await router.settled()).replica(replica)["state"] == "ready"


async def test_an_endless_prompt_is_stopped_at_the_limit(start_router: StartRouter) -> None:
    replica = an_early_reader()
    router = await start_router(replica, max_body_bytes=500_000)
    client = await router.begin(request("POST", PATH, headers={"Transfer-Encoding": "chunked"}))
    while not client.wire.over and b"\r\n\r\n" not in client.wire.unread:
        await client.send(chunk(b"x" * 10_000))
        await asyncio.sleep(0)
    (await client.answer()).refused(413, "body_too_large")
    await replica.requests[0].aborted()
    assert not replica.requests[0].complete


@pytest.mark.parametrize("status", ["413 Request Entity Too Large", "400 Bad Request"])
async def test_an_answer_that_comes_early_is_the_answer(start_router: StartRouter, status: str) -> None:
    async def script(_: Received, connection: Connection) -> None:
        await connection.send(sized(b'{"error":{"message":"no"}}', status=status))

    replica = FakeReplica(script, read_bodies=False)
    router = await start_router(replica)
    client, _ = await half_sent(router, prompt())
    answer = await client.answer()
    assert answer.status == int(status[:3])
    await client.gone()
    assert (await router.settled()).finished == {"upstream_error": 1}


# Slow replicas


async def test_a_slow_replica_slows_the_client_and_is_not_blamed(start_router: StartRouter) -> None:
    gate = asyncio.Event()
    replica = FakeReplica(deaf_until(gate), read_bodies=False)
    router = await start_router(
        replica, max_buffered_bytes=MEGABYTE, timeouts={"client_body": 0.3, "idle": 0.3}
    )
    client = await router.connect()
    client.wire.transport.write(prompt(40 * MEGABYTE))
    received = await begun(replica)
    await eventually(lambda: client.wire.write_blocked, "the client is slowed")
    seen = -1
    while (now := (await in_flight(router))["bytes_in"]) != seen:
        seen = now
        await asyncio.sleep(0.5)  # longer than either limit: neither end is silent of its own will
    assert seen < 16 * MEGABYTE
    gate.set()
    assert (await client.answer(20)).status == 200
    assert received.body == padded(40 * MEGABYTE)


def resident(router: Served) -> float:
    """Megabytes of memory that the process has."""
    lines = Path(f"/proc/{router.process.pid}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return int(fields["VmRSS"].split()[0]) / 1000


async def test_many_slow_prompts_take_no_more_memory_than_they_may(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 prompts of 8 MiB whose replica reads nothing: the shared bound, and the sockets' buffers."""
    count, most = 64, 32 * MEGABYTE
    gate = asyncio.Event()

    async def script(received: Received, connection: Connection) -> None:
        await deaf_until(gate)(received, connection)
        received.body = received.raw_body = b""

    replica = FakeReplica(script, read_bodies=False)
    monkeypatch.setenv("REPLICAROUTER_MAX_BUFFERED_BYTES", str(most))
    router = await serve(replica)
    await router.until_ready(1)
    before = resident(router)
    raw = prompt(8 * 2**20)
    clients = [await router.connect() for _ in range(count)]
    for client in clients:
        client.wire.transport.write(raw)
    await router.stage(sent=count)
    seen, now = -1, 0
    while now != seen:
        await asyncio.sleep(0.3)
        rows = (await router.admin("/admin/requests")).json()["requests"]
        seen, now = now, sum(row["bytes_in"] for row in rows)
    assert now >= count * MEGABYTE
    assert resident(router) - before < most / 1e6 + count
    gate.set()
    for client in clients:
        assert (await client.answer(60)).status == 200
        client.leave()
    await router.settled()
