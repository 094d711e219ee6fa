"""Uploads pass through while they arrive: as sent, no faster than the replica reads, never cut unnoticed."""

import asyncio
import gc
from typing import Any

import pytest

from tests.fakes.client import AbruptClient, chat, request
from tests.fakes.message import LAST_CHUNK, chunk, read_body
from tests.fakes.replica import (
    FOR_EVER,
    OK,
    SHORT_STREAM,
    SSE_HEAD,
    Connection,
    FakeReplica,
    Received,
    Script,
    held,
    reply,
    silence,
    sized,
)
from tests.fakes.running import RunningRouter, StartRouter
from tests.fakes.wire import Ending, eventually

PATH = "/v1/audio/transcriptions"
BOUNDARY = "b'(x)+_,-./:=?"
KIND = f'multipart/form-data; boundary="{BOUNDARY}"'
SPOOLED = 9_000_000
"""Bytes of a file that does not stay in memory until its model is known."""


def form(*, size: int, model_first: bool, model: str = "whisper") -> bytes:
    def part(disposition: str, content: bytes) -> bytes:
        head = f"--{BOUNDARY}\r\nContent-Disposition: form-data; {disposition}\r\n\r\n"
        return head.encode() + content + b"\r\n"

    named = part('name="model"', model.encode())
    content = (bytes(range(256)) * (size // 256 + 1))[:size]
    file = part('name="file"; filename="naïve \\"q\\".mp3"', content)
    rest = [
        part('name="language"', b"en"),
        part('name="timestamp_granularities[]"', b"word"),
        part('name="timestamp_granularities[]"', b"segment"),
        part('name="stream"', b"true"),
        part('name="x"', b"unknown"),
    ]
    parts = [named, file, *rest] if model_first else [file, *rest, named]
    return b"".join([*parts, f"--{BOUNDARY}--\r\n".encode()])


def upload(body: bytes, *, chunked: bool = False, path: str = PATH, **headers: str) -> bytes:
    return request("POST", path, body, {"Content-Type": KIND, **headers}, chunked=chunked)


def split(raw: bytes, at: int) -> tuple[bytes, bytes]:
    """The head with `at` bytes of what stands behind it, and the rest."""
    end = raw.index(b"\r\n\r\n") + 4 + at
    return raw[:end], raw[end:]


def reading(answer: bytes = OK) -> Script:
    """Read the body while it comes, keeping what there is, and answer when it is whole."""

    async def script(received: Received, connection: Connection) -> None:
        body = await read_body(connection.wire, received.head, response=False, deadline=FOR_EVER)
        received.body, received.raw_body = body.entity, body.raw
        received.complete = body.ended == "clean"
        if received.complete:
            await connection.send(answer)

    return script


def an_early_reader(**settings: Any) -> FakeReplica:
    """A replica whose requests are seen as soon as their head has come."""
    return FakeReplica(reading(), read_bodies=False, **settings)


async def begun(replica: FakeReplica, count: int = 1) -> Received:
    await eventually(lambda: len(replica.requests) >= count, "the replica sees the request")
    return replica.requests[count - 1]


async def in_flight(router: RunningRouter) -> dict[str, Any]:
    (row,) = (await router.admin("/admin/requests")).json()["requests"]
    return dict(row)


# As sent


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize("model_first", [True, False], ids=["model-first", "model-last"])
@pytest.mark.parametrize("pools", [1, 2])
@pytest.mark.parametrize("size", [600_000, SPOOLED])
async def test_upload_arrives_as_sent(
    start_router: StartRouter, size: int, pools: int, model_first: bool, chunked: bool
) -> None:
    """H51"""
    replica = FakeReplica(reply(SHORT_STREAM), models=["whisper"], api_key="upstream-key")
    others = [FakeReplica(models=["m2"]) for _ in range(pools - 1)]
    router = await start_router(replica, *others)
    body = form(size=size, model_first=model_first)
    answer = await router.ask(upload(body, chunked=chunked))

    assert (answer.status, answer.body.raw) == (200, SHORT_STREAM.partition(b"\r\n\r\n")[2])
    (received,) = replica.requests
    assert received.body == body
    assert received.head.get("content-type") == KIND
    assert received.head.get("authorization") == "Bearer upstream-key"
    assert len(received.head.framing) == 1
    if not chunked:
        assert received.head.framing == [f"Content-Length: {len(body)}"]
    assert all(other.requests == [] for other in others)
    assert (await router.settled()).finished == {"ok": 1}


async def test_upload_in_many_small_pieces_arrives_as_sent(start_router: StartRouter) -> None:
    replicas = [FakeReplica(models=["whisper"]), FakeReplica(models=["m2"])]
    router = await start_router(*replicas)
    body = form(size=3000, model_first=False)
    client = await router.begin(request("POST", PATH, headers={"Transfer-Encoding": "chunked"}))
    for start in range(0, len(body), 7):
        await client.send(chunk(body[start : start + 7]))
        await asyncio.sleep(0)
    await client.send(LAST_CHUNK)
    assert (await client.answer()).status == 200
    assert replicas[0].requests[0].body == body


@pytest.mark.parametrize("pools", [1, 2])
@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
async def test_upload_is_passed_on_before_it_is_whole(
    start_router: StartRouter, pools: int, chunked: bool
) -> None:
    replica = an_early_reader(models=["whisper"])
    others = [FakeReplica(models=["m2"]) for _ in range(pools - 1)]
    router = await start_router(replica, *others)
    body = form(size=300_000, model_first=True)
    first, rest = split(upload(body, chunked=chunked), 100_000)
    client = await router.begin(first)
    received = await begun(replica)
    await eventually(lambda: received.connection.wire.count_received > 99_000, "what has come is passed on")
    await router.stage(sent=1)
    assert (await in_flight(router))["bytes_in"] >= 90_000
    await client.send(rest)
    assert (await client.answer()).status == 200
    assert received.body == body
    expected = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(body)}"
    assert received.head.framing == [expected]


async def test_upload_waits_for_its_model_where_several_are_served(start_router: StartRouter) -> None:
    replicas = [an_early_reader(models=["whisper"]), an_early_reader(models=["m2"])]
    router = await start_router(*replicas)
    body = form(size=300_000, model_first=False)
    first, rest = split(upload(body), 200_000)
    client = await router.begin(first)
    await router.stage(receiving=1)
    assert all(replica.requests == [] for replica in replicas)
    await client.send(rest)
    assert (await client.answer()).status == 200
    assert replicas[0].requests[0].body == body


async def test_unknown_model_of_an_upload_is_refused_while_it_arrives(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica(models=["whisper"]), FakeReplica(models=["m2"]))
    first, _ = split(upload(form(size=3_000_000, model_first=True, model="nope")), 1_000_000)
    client = await router.begin(first)
    (await client.answer()).refused(404, "model_not_found")
    await client.gone()


async def test_upload_without_a_model_is_refused_where_several_are_served(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica(models=["whisper"]), FakeReplica(models=["m2"]))
    body = b"--b\r\nContent-Disposition: form-data; name=x\r\n\r\n" + bytes(1_000_000) + b"\r\n--b--\r\n"
    client = await router.connect()
    client.wire.transport.write(upload(body))
    (await client.answer()).refused(400, "invalid_request")


async def test_connections_are_kept_after_an_upload(start_router: StartRouter) -> None:
    replica = FakeReplica()
    router = await start_router(replica)
    client = await router.connect()
    for _ in range(3):
        assert (await client.ask(upload(form(size=700_000, model_first=True)))).status == 200
    assert len(replica.used_connections) == 1


# Go-ahead


async def test_go_ahead_comes_when_the_upload_is_wanted(start_router: StartRouter) -> None:
    """H37"""
    replica = FakeReplica()
    router = await start_router(replica)
    body = form(size=700_000, model_first=True)
    head, rest = split(upload(body, Expect="100-continue"), 0)
    client = await router.begin(head)
    assert (await client.head()).start == "HTTP/1.1 100 Continue"
    await client.send(rest)
    assert (await client.answer()).status == 200
    assert replica.requests[0].body == body
    assert replica.requests[0].head.get("expect") is None


async def test_nobody_is_told_to_go_ahead_before_there_is_a_replica(start_router: StartRouter) -> None:
    replica = FakeReplica(silence)
    router = await start_router(replica, admission={"max_outstanding_per_replica": 1, "queue_timeout": 0.3})
    await router.begin(chat())
    await router.stage(sent=1)
    head, _ = split(upload(form(size=700_000, model_first=True), Expect="100-continue"), 0)
    answer = await (await router.begin(head)).answer()
    answer.refused(503, "queue_timeout")
    assert answer.informational == []


# Cut short


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
async def test_upload_cut_short_is_never_whole_at_the_replica(
    start_router: StartRouter, chunked: bool, how: Ending
) -> None:
    """H13"""
    replica = an_early_reader()
    router = await start_router(replica)
    first, _ = split(upload(form(size=300_000, model_first=True), chunked=chunked), 200_000)
    client = await router.begin(first)
    received = await begun(replica)
    await eventually(lambda: received.connection.wire.count_received > 190_000, "it is on its way")
    client.leave(how)
    await received.aborted()
    assert not received.complete
    ledger = await router.settled()
    assert ledger.finished == {"client_gone": 1}
    assert (await router.metrics()).value("client_gone_total", stage="sent") == 1
    assert ledger.replica(replica)["state"] == "ready"


async def test_cut_uploads_do_not_disturb_whole_ones(start_router: StartRouter) -> None:
    """H13"""
    replica = an_early_reader()
    router = await start_router(replica)
    body = form(size=300_000, model_first=True)

    async def cut(number: int) -> None:
        first, _ = split(upload(body, chunked=number % 2 == 0), 40_000 + number)
        (await router.begin(first)).leave()

    whole = router.ask_each([upload(body)] * 20)
    answers, _ = await asyncio.gather(whole, asyncio.gather(*(cut(number) for number in range(20))))
    assert [answer.status for answer in answers] == [200] * 20
    ledger = await router.settled()
    assert ledger.finished == {"ok": 20, "client_gone": 20}
    assert [received.body for received in replica.complete] == [body] * 20


async def test_client_that_stops_sending_is_given_up(start_router: StartRouter) -> None:
    replica = an_early_reader()
    router = await start_router(replica, timeouts={"client_body": 0.3})
    first, _ = split(upload(form(size=300_000, model_first=True)), 200_000)
    client = await router.begin(first)
    (await client.answer()).refused(408, "request_timeout")
    await client.gone()
    await replica.requests[0].aborted()
    assert not replica.requests[0].complete
    ledger = await router.settled()
    assert ledger.finished == {"request_timeout": 1}
    assert ledger.replica(replica)["state"] == "ready"


async def test_slow_upload_that_keeps_coming_is_served(start_router: StartRouter) -> None:
    replica = an_early_reader()
    router = await start_router(replica, timeouts={"client_body": 0.5, "response_head": 0.5})
    body = form(size=60_000, model_first=True)
    raw = upload(body)
    client = await router.begin(raw[:-40])
    for start in range(len(raw) - 40, len(raw), 4):
        # In all longer than either limit, with gaps that are shorter.
        await asyncio.sleep(0.08)
        await client.send(raw[start : start + 4])
    assert (await client.answer()).status == 200
    assert replica.requests[0].body == body


async def test_endless_upload_is_stopped_at_the_limit(start_router: StartRouter) -> None:
    replica = an_early_reader()
    router = await start_router(replica, max_body_bytes=500_000)
    client = await router.begin(request("POST", PATH, headers={"Transfer-Encoding": "chunked"}))
    while not client.wire.over and b"\r\n\r\n" not in client.wire.unread:
        await client.send(chunk(b"x" * 10_000))
        await asyncio.sleep(0)
    (await client.answer()).refused(413, "body_too_large")
    await replica.requests[0].aborted()
    assert not replica.requests[0].complete


async def test_declared_length_over_the_limit_is_refused_unread(start_router: StartRouter) -> None:
    replica = an_early_reader()
    router = await start_router(replica, max_body_bytes=500_000)
    client = await router.begin(request("POST", PATH, headers={"Content-Length": "500001"}))
    (await client.answer()).refused(413, "body_too_large")
    assert replica.requests == []


@pytest.mark.parametrize("broken", [b"zz\r\n", b"-1\r\n", b"5\r\nhello!\r\n"])
async def test_broken_framing_in_an_upload_is_broken_at_the_replica(
    start_router: StartRouter, broken: bytes
) -> None:
    replica = an_early_reader()
    router = await start_router(replica)
    client = await router.begin(request("POST", PATH, headers={"Transfer-Encoding": "chunked"}))
    await client.send(chunk(b"x" * 100_000))
    received = await begun(replica)
    await client.send(broken)
    (await client.answer()).refused(400, "invalid_request")
    await received.aborted()
    assert not received.complete


# Slow replicas, early answers


def deaf_until(gate: asyncio.Event) -> Script:
    """Read nothing until the gate opens, then everything."""

    async def script(received: Received, connection: Connection) -> None:
        connection.wire.pause()
        await gate.wait()
        connection.wire.resume()
        await reading()(received, connection)

    return script


async def settled_at(router: RunningRouter) -> int:
    """How much of the upload the router has read when it reads no more."""
    seen = -1
    while (now := (await in_flight(router))["bytes_in"]) != seen:
        seen = now
        await asyncio.sleep(0.3)
    return seen


async def test_replica_that_reads_slowly_slows_the_client(start_router: StartRouter) -> None:
    gate = asyncio.Event()
    replica = FakeReplica(deaf_until(gate), read_bodies=False)
    router = await start_router(replica)
    body = form(size=40_000_000, model_first=True)
    client = await router.connect()
    client.wire.transport.write(upload(body))
    received = await begun(replica)
    read = await settled_at(router)
    # Two sockets' kernel buffers and less than 1 MiB of ours.
    assert read < 16_000_000
    assert client.wire.write_blocked
    gate.set()
    assert (await client.answer(20)).status == 200
    assert received.body == body


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_client_that_leaves_while_its_replica_reads_nothing_is_noticed(
    start_router: StartRouter, how: Ending
) -> None:
    """Nothing is read from the client then, so nothing says by itself that it has left."""
    gate = asyncio.Event()
    replica = FakeReplica(deaf_until(gate), read_bodies=False)
    router = await start_router(replica)
    head, rest = split(upload(form(size=40_000_000, model_first=True)), 0)
    client = await router.begin(head)
    await begun(replica)
    at = 0
    while (await settled_at(router)) == at:
        # All that the client has sent must fit into the router's socket, or its end would not get there.
        await client.send(rest[at : at + 500_000])
        at += 500_000
    client.leave(how)
    ledger = await router.settled()
    assert ledger.finished == {"client_gone": 1}
    gate.set()
    await eventually(lambda: replica.requests[0].gone, "the replica sees a broken end")
    assert not replica.requests[0].complete


def at_once(answer: bytes) -> Script:
    """Answer without reading the body, and never read it."""

    async def script(_: Received, connection: Connection) -> None:
        await connection.send(answer)
        await connection.wire.read_to_end(FOR_EVER)

    return script


@pytest.mark.parametrize("status", ["413 Too Large", "401 Unauthorized", "303 See Other"])
@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
async def test_early_refusal_of_the_replica_is_passed_on_and_ends_the_upload(
    start_router: StartRouter, chunked: bool, status: str
) -> None:
    early = sized(b'{"error":"no"}', status=status)
    replica = FakeReplica(at_once(early), read_bodies=False)
    router = await start_router(replica)
    first, _ = split(upload(form(size=3_000_000, model_first=True), chunked=chunked), 100_000)
    client = await router.begin(first)
    answer = await client.answer()
    assert (answer.status, answer.body.raw) == (int(status[:3]), b'{"error":"no"}')
    assert (answer.head.get("connection") or "").lower() == "close"
    await client.gone()
    await router.settled()
    replica.script = reading()
    assert (await router.ask(chat())).status == 200
    # What was left of the upload must not be read as part of the next request.
    assert len(replica.used_connections) == 2
    await replica.requests[0].aborted()


async def test_nothing_is_sent_to_a_replica_that_has_refused(start_router: StartRouter) -> None:
    gate = asyncio.Event()
    early = sized(b'{"error":"no"}', status="413 Too Large")

    async def script(_: Received, connection: Connection) -> None:
        await connection.send(early[:-3])
        await gate.wait()
        await connection.send(early[-3:])
        await connection.wire.read_to_end(FOR_EVER)

    replica = FakeReplica(script, read_bodies=False)
    router = await start_router(replica)
    first, rest = split(upload(form(size=20_000_000, model_first=True)), 100_000)
    client = await router.begin(first)
    head = await client.head()
    client.wire.transport.write(rest)
    assert await settled_at(router) < 1_000_000
    gate.set()
    assert (await client.body(head)).ended == "clean"


async def test_early_refusal_arrives_although_the_client_still_sends(start_router: StartRouter) -> None:
    replica = FakeReplica(at_once(sized(b"{}", status="413 Too Large")), read_bodies=False)
    router = await start_router(replica)
    client = await router.connect()
    client.wire.transport.write(upload(form(size=5_000_000, model_first=True)))
    answer = await client.answer()
    assert (answer.status, answer.ended) == (413, "clean")


async def test_replica_may_answer_while_it_still_reads(start_router: StartRouter) -> None:
    """A success before the end of the upload does not stop the upload."""
    whole = asyncio.Event()
    body = form(size=1_000_000, model_first=True)

    async def script(received: Received, connection: Connection) -> None:
        await connection.send(SSE_HEAD)
        received.body = await connection.wire.read_exactly(len(body), FOR_EVER)
        whole.set()
        await connection.send(SHORT_STREAM.removeprefix(SSE_HEAD))

    replica = FakeReplica(script, read_bodies=False)
    router = await start_router(replica)
    first, rest = split(upload(body), 100_000)
    client = await router.begin(first)
    head = await client.head()
    assert head.status == 200
    await client.send(rest)
    await asyncio.wait_for(whole.wait(), 5)
    assert (await client.body(head)).ended == "clean"
    assert replica.requests[0].body == body


async def test_replica_that_dies_in_an_upload_is_not_replaced(start_router: StartRouter) -> None:
    async def die(received: Received, connection: Connection) -> None:
        await connection.wire.read_exactly(400_000, FOR_EVER)
        connection.wire.reset()

    replicas = [FakeReplica(die, read_bodies=False) for _ in range(2)]
    router = await start_router(*replicas, retry={"resend": True})
    first, _ = split(upload(form(size=3_000_000, model_first=True)), 700_000)
    client = await router.begin(first)
    (await client.answer()).refused(502, "replica_disconnected")
    assert sum(len(replica.requests) for replica in replicas) == 1


# Again


BUSY = sized(b'{"error":{"message":"busy"}}', status="503 Service Unavailable", headers="Retry-After: 1\r\n")


async def test_upload_is_tried_elsewhere_when_nobody_listens(start_router: StartRouter) -> None:
    dead, live = FakeReplica(), FakeReplica()
    router = await start_router(dead, live, policy="round-robin", health={"interval": 60})
    await dead.refuse()
    body = form(size=SPOOLED, model_first=True)
    answers = [await router.ask(upload(body)) for _ in range(2)]
    assert [answer.status for answer in answers] == [200, 200]
    assert [received.body for received in live.requests] == [body, body]


async def test_spooled_upload_is_sent_again(start_router: StartRouter) -> None:
    """H51, with a replica that has no room."""
    busy = FakeReplica(reply(BUSY), models=["whisper"])
    free = FakeReplica(models=["whisper"])
    router = await start_router(busy, free, FakeReplica(models=["m2"]), policy="round-robin")
    body = form(size=SPOOLED, model_first=False)
    answers = [await router.ask(upload(body)) for _ in range(2)]
    assert [answer.status for answer in answers] == [200, 200]
    assert [received.body for received in free.requests] == [body, body]
    assert [received.body for received in busy.requests] == [body]


async def test_small_beginning_of_an_upload_is_sent_again(start_router: StartRouter) -> None:
    """A replica that refuses at once costs nothing while little has been sent."""
    replicas = [FakeReplica(reply(BUSY), read_bodies=False), FakeReplica(reply(BUSY), read_bodies=False)]
    taken: list[int] = []
    body = form(size=300_000, model_first=True)

    def once(index: int) -> Script:
        async def script(received: Received, connection: Connection) -> None:
            taken.append(index)
            if len(taken) == 1:
                await connection.wire.read_exactly(40_000, FOR_EVER)
                await connection.send(BUSY)
            else:
                await reading()(received, connection)

        return script

    for index, replica in enumerate(replicas):
        replica.script = once(index)
    router = await start_router(*replicas)
    first, rest = split(upload(body), 50_000)
    client = await router.begin(first)
    await eventually(lambda: len(taken) == 2, "the other replica has it")
    await client.send(rest)
    assert (await client.answer()).status == 200
    assert replicas[taken[1]].requests[0].body == body
    assert taken[0] != taken[1]


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
async def test_what_came_while_its_replica_refused_is_never_missing_elsewhere(
    start_router: StartRouter, chunked: bool
) -> None:
    body = form(size=200_000, model_first=True)
    pieces = [body[:100_000], body[100_000:150_000], body[150_000:]]
    parts = [chunk(piece) for piece in pieces] if chunked else pieces
    others = [FakeReplica(reading(), read_bodies=False) for _ in range(2)]
    router = await start_router(*others)
    client = await router.begin(split(upload(body, chunked=chunked), 0)[0] + parts[0])
    await eventually(lambda: others[0].requests or others[1].requests, "a replica has it")
    refusing, other = others if others[0].requests else others[::-1]
    (received,) = refusing.requests
    await eventually(lambda: received.connection.wire.count_received > 100_000, "the first part is there")

    # In one turn of the router: more than is kept, and the refusal.
    client.wire.send_at_once(parts[1])
    received.connection.wire.send_at_once(sized(b"busy", status="503 Busy"))
    await received.aborted()
    await client.send(parts[2] + (LAST_CHUNK if chunked else b""))
    answer = await client.answer()
    assert (answer.status, answer.body.raw) == (503, b"busy")
    assert other.requests == []


async def test_refusal_that_comes_slowly_during_an_upload_is_no_missing_answer(
    start_router: StartRouter,
) -> None:
    gate = asyncio.Event()
    refusal = sized(b'{"error":"broken"}', status="503 Unavailable")

    async def script(received: Received, connection: Connection) -> None:
        await connection.send(refusal[:-1])
        await read_body(connection.wire, received.head, response=False, deadline=FOR_EVER)
        await gate.wait()
        await connection.send(refusal[-1:])

    replica = FakeReplica(script, read_bodies=False)
    router = await start_router(replica, timeouts={"response_head": 0.3})
    first, rest = split(upload(form(size=10_000, model_first=True)), 5_000)
    client = await router.begin(first)
    await begun(replica)
    await client.send(rest)
    head = await client.head()
    gate.set()
    assert head.status == 503
    assert (await client.body(head)).ended == "clean"


async def test_client_may_leave_in_the_very_turn_in_which_its_upload_is_refused(
    start_router: StartRouter,
) -> None:
    """Nothing is left of the refusal that somebody would have to log."""
    replicas = [an_early_reader() for _ in range(2)]
    router = await start_router(*replicas)
    begin, _ = split(upload(form(size=10_000, model_first=True)), 5_000)
    client = AbruptClient(router.port, begin)
    (received,) = await eventually(lambda: [*replicas[0].requests, *replicas[1].requests], "one has it")
    received.connection.wire.send_at_once(sized(b"busy", status="503 Busy"))
    client.leave("rst")
    ledger = await router.settled()
    assert ledger.finished == {"client_gone": 1}
    assert len(replicas[0].requests) + len(replicas[1].requests) == 1
    gc.collect()


async def test_client_that_leaves_while_its_upload_is_queued_is_noticed(start_router: StartRouter) -> None:
    gate = asyncio.Event()
    replica = FakeReplica(held(b"", gate, OK))
    router = await start_router(replica, admission={"max_outstanding_per_replica": 1})
    holder = await router.begin(chat(stream=False))
    await router.stage(sent=1)
    client = await router.connect()
    client.wire.transport.write(upload(form(size=5_000_000, model_first=True)))
    await router.stage(sent=1, queued=1)
    await eventually(lambda: client.wire.write_blocked, "nothing is read from it any more")
    client.leave("rst")
    ledger = await router.stage(sent=1)
    assert ledger.finished == {"client_gone": 1}
    gate.set()
    assert (await holder.answer()).status == 200
    assert len(replica.requests) == 1


# Other paths


@pytest.mark.parametrize("size", [100, 3_000_000])
@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
async def test_added_path_takes_anything_where_one_model_is_served(
    start_router: StartRouter, chunked: bool, size: int
) -> None:
    replica = FakeReplica()
    router = await start_router(replica, extra_paths=["/x/*"])
    body = bytes(range(256)) * (size // 256 + 1)
    answer = await router.ask(upload(body, chunked=chunked, path="/x/y"))
    assert answer.status == 200
    assert replica.requests[0].body == body


@pytest.mark.parametrize("size", [100, 3_000_000])
async def test_added_path_needs_a_model_where_several_are_served(
    start_router: StartRouter, size: int
) -> None:
    replicas = [FakeReplica(), FakeReplica(models=["m2"])]
    router = await start_router(*replicas, extra_paths=["/x"])
    client = await router.connect()
    client.wire.transport.write(upload(bytes(size), path="/x"))
    (await client.answer()).refused(400, "invalid_request")
    padded = b'{"model":"m2","pad":"' + b"x" * size + b'"}'
    assert (await router.ask(upload(padded, path="/x"))).status == 200
    assert replicas[1].requests[0].body == padded


async def test_answer_gets_out_although_its_replica_never_reads_the_upload(start_router: StartRouter) -> None:
    gate = asyncio.Event()

    async def script(_: Received, connection: Connection) -> None:
        await connection.send(OK[:-3])
        await gate.wait()
        await connection.send(OK[-3:])
        await connection.wire.read_to_end(FOR_EVER)

    router = await start_router(FakeReplica(script, read_bodies=False))
    client = await router.connect()
    client.wire.transport.write(upload(form(size=20_000_000, model_first=True)))
    head = await client.head()
    gate.set()
    assert (await client.body(head)).ended == "clean"
