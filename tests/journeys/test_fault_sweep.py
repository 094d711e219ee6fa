"""The fault sweep: one side is cut at every possible moment, and after each cut the ledger settles, each
request is counted once, and nothing that was cut counts as served."""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest

from tests.fakes.client import Answer, chat, chat_body, request
from tests.fakes.message import LAST_CHUNK
from tests.fakes.replica import (
    OK,
    SHORT_STREAM,
    SSE_HEAD,
    Connection,
    FakeReplica,
    Received,
    event,
    reply,
    silence,
    sized,
    stall,
)
from tests.fakes.running import Ledger, RunningRouter, StartRouter
from tests.fakes.wire import Ending, eventually

ENDINGS: tuple[Ending, ...] = ("fin", "rst")
TURNS = 150
"""Turns of the event loop; one request takes about a third of these."""

UNTOLD = SHORT_STREAM.partition(event("[DONE]"))[0]
"""A stream whose client does not know yet that it is over: at `[DONE]` it would have had its answer."""


def split_head(raw: bytes) -> tuple[bytes, bytes]:
    """Head and body of a response."""
    head, end, body = raw.partition(b"\r\n\r\n")
    return head + end, body


STREAMED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + event("1") + LAST_CHUNK
SIZED = sized(b'{"a":1}')
UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\n\r\n{}"
BUSY = sized(b'{"error":"busy"}', status="503 Busy")
EVENTS = event("1") + event("[DONE]") + LAST_CHUNK

ANSWERS = {
    "events": (SSE_HEAD, EVENTS),
    "chunks": (SSE_HEAD.replace(b"text/event-stream", b"application/json"), EVENTS),
    "sized": split_head(SIZED),
    "until-close": split_head(UNTIL_CLOSE),
    "events-until-close": (b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", b"data: 1\n\n"),
    "no-body": (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    "behind-an-interim-head": (b"HTTP/1.1 100 Continue\r\n\r\n" + split_head(SIZED)[0], b'{"a":1}'),
    "rejected": split_head(sized(b"{}", status="400 Bad")),
    "busy": split_head(BUSY),
    "full": split_head(sized(b"{}", status="429 Full", headers="Retry-After: 1\r\n")),
    "broken": split_head(sized(b"{}", status="500 Broken")),
}
MAY_BE_ASKED_ELSEWHERE = {"busy", "full"}
"""Their replica says that it did not run the request, so another one may have it."""


async def counted_once(router: RunningRouter) -> Ledger:
    """Assert that at rest every request that came in has ended in one way, in every view."""
    ledger = await router.settled()
    metrics = await router.metrics()
    assert sum(ledger.finished.values()) == ledger["received_total"]
    assert metrics.value("requests_total") == ledger["received_total"]
    assert metrics.value("requests_received_total") == ledger["received_total"]
    assert metrics.value("client_gone_total") == ledger.finished.get("client_gone", 0)
    assert "unsettled" not in ledger.finished
    return ledger


class Outcomes(logging.Handler):
    """What the access log says of each request, by its id."""

    def __init__(self) -> None:
        super().__init__()
        self.of: defaultdict[str, list[str]] = defaultdict(list)

    def emit(self, record: logging.LogRecord) -> None:
        fields = vars(record)
        self.of[fields["request_id"]].append(fields["outcome"].partition("@")[0])


@pytest.fixture
def outcomes() -> Iterator[Outcomes]:
    heard = Outcomes()
    access = logging.getLogger("replicarouter.access")
    before = access.level
    access.setLevel(logging.INFO)
    access.addHandler(heard)
    yield heard
    access.removeHandler(heard)
    access.setLevel(before)


def outcome_seen(answer: Answer) -> str:
    """How a request ended, going by what its client saw."""
    if answer.head.get("x-replicarouter-replica") is None:
        return str(answer.refused(answer.status, answer.json()["error"]["code"])["code"])
    if answer.ended == "dirty" or b'"error":{' in answer.body.entity:
        return "replica_disconnected"
    return "ok" if answer.status < 400 else "upstream_error"


def relayed(answer: Answer) -> bytes:
    """The bytes of a broken answer's body that its replica sent: without the event that says so."""
    before, found, _ = answer.body.raw.partition(b'data: {"error":{')
    if found and answer.body.framing == "chunked":
        return b"".join(before.splitlines(keepends=True)[:-1])
    return before


class Deliveries:
    """Which request reached replicas how often; retries carry the id of their request and a suffix."""

    def __init__(self) -> None:
        self.of: Counter[str] = Counter()

    def note(self, received: Received) -> int:
        """How often this request has come, this time included."""
        name = (received.head.get("x-request-id") or "").partition("-r")[0]
        self.of[name] += 1
        return self.of[name]


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("how", ENDINGS)
@pytest.mark.parametrize("raw", [SHORT_STREAM, SIZED], ids=["stream", "sized"])
async def test_client_cut_after_any_number_of_turns(
    start_router: StartRouter, raw: bytes, how: Ending
) -> None:
    router = await start_router(FakeReplica(reply(raw)))
    for count in range(TURNS):
        client = await router.begin(chat())
        await turns(count)
        client.leave(how)
    ledger = await counted_once(router)
    assert set(ledger.finished) <= {"ok", "client_gone"}
    # The late cuts come after the answer, so that the sweep spans the whole request.
    assert ledger.finished["ok"] >= 1
    assert ledger.finished["client_gone"] >= 1


@pytest.mark.parametrize("how", ENDINGS)
async def test_client_cut_after_any_number_of_turns_is_never_served_by_a_held_answer(
    start_router: StartRouter, how: Ending
) -> None:
    router = await start_router(FakeReplica(stall(UNTOLD)))
    for count in range(TURNS):
        client = await router.begin(chat())
        await turns(count)
        client.leave(how)
    ledger = await counted_once(router)
    assert set(ledger.finished) == {"client_gone"}


@pytest.mark.parametrize("how", ENDINGS)
@pytest.mark.parametrize("chunked", [False, True], ids=["sized", "chunked"])
async def test_client_cut_after_any_byte_of_its_request(
    start_router: StartRouter, how: Ending, chunked: bool
) -> None:
    replica = FakeReplica(silence)
    router = await start_router(replica)
    raw = request("POST", "/v1/chat/completions", chat_body(), chunked=chunked)
    for count in range(1, len(raw)):
        client = await router.begin(raw[:count])
        client.leave(how)
    ledger = await counted_once(router)
    assert replica.requests == []
    assert set(ledger.finished) <= {"client_gone"}


@pytest.mark.parametrize("how", ENDINGS)
@pytest.mark.parametrize("raw", [STREAMED, SIZED, UNTIL_CLOSE + b"x"], ids=["stream", "sized", "until-close"])
async def test_client_cut_after_any_byte_of_its_answer(
    start_router: StartRouter, raw: bytes, how: Ending
) -> None:
    router = await start_router(FakeReplica(stall(raw[:-1])))
    received: list[int] = []
    for count in range(0, len(raw), 3):
        client = await router.begin(chat())
        received.append(len(await client.wire.read_exactly(count)))
        client.leave(how)
    ledger = await counted_once(router)
    assert ledger.finished == {"client_gone": len(received)}


@pytest.mark.parametrize("how", ENDINGS)
@pytest.mark.parametrize("name", ANSWERS)
async def test_replica_cut_after_any_byte_of_its_answer(
    start_router: StartRouter, outcomes: Outcomes, name: str, how: Ending
) -> None:
    head, body = ANSWERS[name]
    raw, length, deliveries = head + body, 0, Deliveries()

    async def script(received: Received, connection: Connection) -> None:
        if deliveries.note(received) > 1:
            await connection.send(OK)
            return
        await connection.send(raw[:length])
        connection.wire.close() if how == "fin" else connection.wire.reset()

    router = await start_router(FakeReplica(script), FakeReplica(script))
    for length in range(len(raw) + 1):
        answer = await router.ask(chat(headers={"X-Request-Id": f"cut.{length}"}))
        (ended,) = outcomes.of[f"cut.{length}"]
        assert ended == outcome_seen(answer)
        whole = length == len(raw) or ("until-close" in name and how == "fin" and length >= len(head))
        if deliveries.of[f"cut.{length}"] > 1:
            assert (deliveries.of[f"cut.{length}"], whole, ended) == (2, True, "ok")
            assert name in MAY_BE_ASKED_ELSEWHERE
        elif ended in {"ok", "upstream_error"}:
            assert whole
            assert answer.body.raw == raw[len(head) : length]
        else:
            assert ended == "replica_disconnected"
            assert answer.status == 502 or raw[:length].startswith(head + relayed(answer))
    await counted_once(router)
    assert sum(deliveries.of.values()) <= len(raw) + 2


@pytest.mark.parametrize("how", ENDINGS)
async def test_replica_cut_after_any_number_of_turns(start_router: StartRouter, how: Ending) -> None:
    count = 0

    async def script(_: Received, connection: Connection) -> None:
        for piece in (SHORT_STREAM[:20], SHORT_STREAM[20:-1]):
            connection.wire.transport.write(piece)
            await turns(count)
        connection.wire.close() if how == "fin" else connection.wire.reset()

    router = await start_router(FakeReplica(script))
    for count in range(40):  # noqa: B007 - the script reads it
        answer = await router.ask(chat())
        assert answer.status == 502 or answer.ended == "dirty"
    ledger = await counted_once(router)
    assert ledger.finished == {"replica_disconnected": 40}


@pytest.mark.parametrize("how", ENDINGS)
async def test_both_sides_cut_after_any_number_of_turns(start_router: StartRouter, how: Ending) -> None:
    count = 0

    async def script(_: Received, connection: Connection) -> None:
        connection.wire.transport.write(UNTOLD)
        await turns(count)
        connection.wire.close() if how == "fin" else connection.wire.reset()

    router = await start_router(FakeReplica(script))
    for count in range(40):
        client = await router.begin(chat())
        await turns(count + 20)
        client.leave(how)
    ledger = await counted_once(router)
    assert set(ledger.finished) <= {"client_gone", "replica_disconnected"}


@pytest.mark.parametrize("how", ENDINGS)
async def test_client_cut_while_it_waits_for_a_slot(start_router: StartRouter, how: Ending) -> None:
    """A slot granted in the very turn in which its waiter leaves must go to the next one."""
    replica = FakeReplica(reply(SIZED))
    router = await start_router(replica, connector={"limit": 1})
    for count in range(TURNS // 2):
        clients = [await router.begin(chat()) for _ in range(4)]
        await turns(count)
        for client in clients[1:3]:
            client.leave(how)
        for client in (clients[0], clients[3]):
            assert (await client.answer()).status == 200
            client.leave()
    ledger = await counted_once(router)
    assert set(ledger.finished) <= {"ok", "client_gone"}
    assert ledger.finished["ok"] >= TURNS


@pytest.mark.parametrize("how", ENDINGS)
async def test_client_cut_while_it_is_queued(start_router: StartRouter, how: Ending) -> None:
    """Room granted in the very turn in which its waiter leaves must go to the next one."""
    replica, deliveries = FakeReplica(), Deliveries()

    async def script(received: Received, connection: Connection) -> None:
        deliveries.note(received)
        await connection.send(SIZED)

    replica.script = script
    router = await start_router(replica, admission={"max_outstanding_per_replica": 1})
    for count in range(TURNS // 2):
        clients = [
            await router.begin(chat(headers={"X-Request-Id": f"queued.{count}.{place}"}))
            for place in range(4)
        ]
        await turns(count)
        for client in clients[1:3]:
            client.leave(how)
        for client in (clients[0], clients[3]):
            assert (await client.answer()).status == 200
            client.leave()
    ledger = await counted_once(router)
    assert set(ledger.finished) <= {"ok", "client_gone"}
    assert ledger.finished["ok"] >= TURNS
    assert max(deliveries.of.values()) == 1


@pytest.mark.parametrize("how", ENDINGS)
async def test_client_cut_while_its_connection_is_made(start_router: StartRouter, how: Ending) -> None:
    replica = FakeReplica()
    router = await start_router(replica, health={"interval": 1000})
    await replica.stop_answering_connects()
    for count in range(0, TURNS, 3):
        client = await router.begin(chat())
        await turns(count)
        client.leave(how)
    ledger = await counted_once(router)
    assert set(ledger.finished) <= {"client_gone"}
    assert replica.requests == []


@pytest.mark.parametrize("how", ENDINGS)
async def test_client_cut_while_the_answer_of_a_busy_replica_is_weighed(
    start_router: StartRouter, how: Ending
) -> None:
    """The replica has said 503, or part of it: whatever its answer is worth, nobody is left to have it."""
    length, deliveries = 0, Deliveries()

    async def script(received: Received, connection: Connection) -> None:
        deliveries.note(received)
        await connection.send(BUSY[:length])
        await connection.wire.gone()

    replicas = [FakeReplica(script), FakeReplica(script)]
    router = await start_router(*replicas)
    for length in range(len(BUSY)):
        client = await router.begin(chat(headers={"X-Request-Id": f"weighed.{length}"}))
        await eventually(lambda: deliveries.of.total() > length, "the request arrives")  # noqa: B023
        await turns(length % 7)
        client.leave(how)
    ledger = await counted_once(router)
    assert ledger.finished == {"client_gone": len(BUSY)}
    assert set(deliveries.of.values()) == {1}


class CuttingReplica(FakeReplica):
    """Ends the connection when it has read `count` bytes of a request; probes are answered."""

    def __init__(self, how: Ending) -> None:
        super().__init__()
        self.how = how
        self.count = 0
        self.cuts = 0

    async def _serve_one(self, connection: Connection) -> None:
        wire = connection.wire
        await wire.until(lambda: bool(wire.unread) or wire.over, "a request", 3600)
        if not wire.unread.startswith(b"P"):
            await super()._serve_one(connection)
            return
        await wire.read_exactly(self.count)
        self.cuts += 1
        wire.close() if self.how == "fin" else wire.reset()
        await wire.until(lambda: wire.closed, "the end of the connection")


@pytest.mark.parametrize("how", ENDINGS)
async def test_replica_cut_after_any_byte_of_its_request(
    start_router: StartRouter, outcomes: Outcomes, how: Ending
) -> None:
    replicas = [CuttingReplica(how), CuttingReplica(how)]
    router = await start_router(*replicas)
    raw = chat()
    for count in range(len(raw)):
        for replica in replicas:
            replica.count = count
        answer = await router.ask(chat(headers={"X-Request-Id": f"cut.{count}"}))
        answer.refused(502, "replica_disconnected")
        assert outcomes.of[f"cut.{count}"] == ["replica_disconnected"]
    await counted_once(router)
    assert sum(replica.cuts for replica in replicas) == len(raw)


async def test_replica_that_ends_idle_connections_at_any_moment_loses_no_request(
    start_router: StartRouter, outcomes: Outcomes
) -> None:
    count, deliveries = 0, Deliveries()

    async def script(received: Received, connection: Connection) -> None:
        deliveries.note(received)
        await connection.send(SIZED)
        await turns(count)
        connection.wire.close()
        await connection.wire.until(lambda: connection.wire.closed, "the end of the connection")

    # Nearly every request needs its second connection here, which is more than the budget is meant for.
    router = await start_router(FakeReplica(script), retry={"budget": 1})
    client = await router.connect()
    for count in range(TURNS):
        answer = await client.ask(chat(headers={"X-Request-Id": f"next.{count}"}))
        assert answer.status == 200
        assert outcomes.of[f"next.{count}"] == ["ok"]
    await counted_once(router)
    assert set(deliveries.of.values()) == {1}


async def test_router_stopped_after_any_number_of_turns_leaves_nobody_waiting(
    start_router: StartRouter,
) -> None:
    replica = FakeReplica(stall(SHORT_STREAM[:-1]))
    await start_router(replica)
    for count in range(0, 60, 4):
        router = await start_router(replica.settings["url"], ready=1)
        clients = [await router.begin(chat()) for _ in range(3)]
        await turns(count)
        await router.stop()
        for client in clients:
            await client.gone()
            assert not client.wire.unread.endswith(LAST_CHUNK)
    await eventually(lambda: all(received.gone for received in replica.requests), "all are aborted")
