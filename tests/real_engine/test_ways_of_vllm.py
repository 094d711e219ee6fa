"""What real vLLM does that misleads a router, each once, on a server with settings of its own."""

import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.fakes.client import request
from tests.real_engine.conftest import StartRouter
from tests.real_engine.rig import (
    CONTEXT,
    HOST,
    SLOTS,
    EngineFleet,
    RouterProcess,
    answers,
    free_port,
    metric,
    running,
    total,
    wait_until,
)
from tests.real_engine.samples import chat
from tests.real_engine.users import CUT_SHORT, Users

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(240)]

SOON = 30.0
KEEP_ALIVE = 1
"""Seconds after which the server closes an idle connection."""

MOST = 4
"""Requests that the server has at most, queued or running."""

WORDS = (
    f"VLLM_HTTP_TIMEOUT_KEEP_ALIVE={KEEP_ALIVE}",
    "--shutdown-timeout=10",
    f"--max-num-queued-reqs={MOST}",
)
LONG = chat(stream=True, max_tokens=CONTEXT // 4, ignore_eos=True)
"""Goes on for seconds, unless aborted."""

SHORT = chat(max_tokens=4)


@pytest.fixture(scope="module")
def third(fleet: EngineFleet) -> Iterator[int]:
    """The port of a third server, which these tests may do to what they like."""
    port = free_port()
    fleet.start([port], *WORDS)
    yield port
    fleet.kill(port)
    fleet.ports.remove(port)


@pytest.fixture
def victim(fleet: EngineFleet, third: int) -> Iterator[int]:
    """The third server for a test that ends it; afterwards there is another."""
    yield third
    if fleet.lives(third):
        fleet.kill(third)
    fleet.start([third], *WORDS)


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    """Holds what a test opens; what is still open is closed afterwards."""
    with ExitStack() as stack:
        yield stack


def send(port: int, raw: bytes, opened: ExitStack) -> socket.socket:
    """A request on a connection of its own."""
    connection = opened.enter_context(socket.create_connection((HOST, port), timeout=SOON))
    connection.sendall(raw)
    return connection


def open_long(port: int, opened: ExitStack) -> socket.socket:
    """A long stream; its first text is out."""
    connection = send(port, request("POST", LONG.path, LONG.raw), opened)
    receive_until(connection, b'"content":"<think>"')
    return connection


def receive_until(connection: socket.socket, marker: bytes) -> bytes:
    """All that comes, up to a read that holds the marker."""
    received = b""
    while marker not in received:
        data = connection.recv(65536)
        assert data, f"ended before {marker!r}: {received[-300:]!r}"
        received += data
    return received


def send_short(port: int, opened: ExitStack) -> socket.socket:
    """A short chat, after whose answer the connection closes."""
    return send(port, request("POST", SHORT.path, SHORT.raw, {"Connection": "close"}), opened)


def receive_all(connection: socket.socket) -> tuple[bytes, bytes]:
    """Head and body of an answer that ends with the connection."""
    received = b""
    while data := connection.recv(65536):
        received += data
    head, _, body = received.partition(b"\r\n\r\n")
    return head, body


def body_of(port: int, opened: ExitStack) -> tuple[bytes, bytes]:
    """Head and body of the answer to a short chat."""
    return receive_all(send_short(port, opened))


def counted(router: RouterProcess, name: str, **labels: str) -> float:
    """A counter of the router's; 0 while it has no such sample."""
    return metric(router.port, f"replicarouter_{name}_total", **labels) or 0


def test_drain_of_an_engine_turns_nobody_away(
    fleet: EngineFleet, hasty: StartRouter, victim: int, opened: ExitStack
) -> None:
    name = f"{HOST}:{victim}"
    # Once it is out it stays out, until its port is closed and open again.
    router = hasty(fleet.ports[0], victim, eject__base_seconds=60)
    long = open_long(victim, opened)
    with Users(router.port, MOST) as users:
        wait_until(lambda: users.served_by(name), "it serves", deadline=SOON)
        fleet.signal_server(victim, signal.SIGTERM)
        wait_until(lambda: router.state(victim) == "ejected", "it has left", deadline=SOON)
        assert answers(victim, "/health")
        head, body = body_of(victim, opened)
        assert head.startswith(b"HTTP/1.1 500 ")
        assert b"cannot schedule new futures after shutdown" in body
        receive_until(long, b"data: [DONE]")
        wait_until(lambda: router.state(victim) == "unhealthy", "its port is closed", deadline=SOON)
        fleet.kill(victim)
        fleet.start([victim], *WORDS)
        started = time.monotonic()
        wait_until(lambda: users.served_by(name, since=started), "it serves again", deadline=SOON)
    # What has just been let in when the signal comes ends at once, without text but regularly.
    lost = [one for one in users.told if one.outcome != "ok"]
    assert {one.outcome for one in lost} <= CUT_SHORT
    assert len(lost) <= MOST
    refused = counted(router, "attempts", replica=name, result="shutting_down")
    assert refused == counted(router, "retries", reason="shutting_down") > 0
    assert counted(router, "ejections", replica=name, reason="shutting_down") > 0
    assert counted(router, "ejections") == counted(router, "ejections", reason="shutting_down")


def test_loading_engine_refuses_connections_and_nobody_is_told(
    fleet: EngineFleet, hasty: StartRouter, third: int
) -> None:
    name = f"{HOST}:{third}"
    # So rarely probed that a request finds out first.
    router = hasty(fleet.ports[0], third, health__interval=4)
    with Users(router.port, 1) as users:
        wait_until(lambda: users.served_by(name), "it serves", deadline=SOON)
    fleet.kill(third)
    with Users(router.port, MOST) as others:
        fleet.start([third], *WORDS)
        wait_until(lambda: others.served_by(name), "it serves again", deadline=SOON)
    assert users.outcomes().keys() | others.outcomes().keys() == {"ok"}
    refused = counted(router, "attempts", replica=name, result="connect_failed")
    assert refused == counted(router, "retries", reason="connect_failed") > 0


def test_busy_engine_is_spared_and_stays(fleet: EngineFleet, hasty: StartRouter, third: int) -> None:
    name = f"{HOST}:{third}"
    router = hasty(fleet.ports[0], third)
    before = metric(third, "vllm:admission_rejections_total") or 0
    with Users(router.port, 4 * MOST) as users:
        wait_until(lambda: len(users.told) > 40 * MOST, "each was served ten times", deadline=SOON)
    # Of those that arrive at one moment vLLM turns some away only after their 200 is out.
    late = users.outcomes().get("503", 0)
    assert users.outcomes().keys() - {"503"} == {"ok"}
    assert router.outcomes().get("upstream_error", 0) == late
    assert users.served_by(name)
    refused = counted(router, "attempts", replica=name, result="busy")
    assert refused == counted(router, "retries", reason="busy") > 0
    assert total(third, "vllm:admission_rejections_total") - before == refused + late
    assert counted(router, "ejections") == 0
    assert router.state(third) == "ready"


def test_refusal_of_the_only_engine_is_passed_on_as_it_is(
    hasty: StartRouter, third: int, opened: ExitStack
) -> None:
    router = hasty(third)
    for _ in range(MOST):
        send(router.port, request("POST", LONG.path, LONG.raw), opened)
    wait_until(lambda: running(third) == SLOTS, "it is full", deadline=SOON)
    wait_until(lambda: body_of(third, opened)[0].startswith(b"HTTP/1.1 503 "), "it refuses", deadline=SOON)
    direct, direct_body = body_of(third, opened)
    routed, routed_body = body_of(router.port, opened)
    assert routed.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after" not in direct.lower() + routed.lower()
    assert routed_body == direct_body
    assert b"The engine is currently busy" in direct_body
    assert router.state(third) == "ready"


def test_connection_that_the_engine_closes_as_idle_costs_no_request(
    fleet: EngineFleet, hasty: StartRouter, third: int, opened: ExitStack
) -> None:
    """The requests come while the server cannot read, and its time for the idle connection ends before it
    goes on; uvicorn then closes before it reads."""
    router = hasty(third, connector__keepalive=60, retry__stale_window=1)
    deadline = time.monotonic() + SOON
    while not counted(router, "retries", reason="stale_connection"):
        assert time.monotonic() < deadline, "no connection was closed under a request"
        asked = [send_short(router.port, opened) for _ in range(MOST)]
        for connection in asked:
            assert receive_all(connection)[0].startswith(b"HTTP/1.1 200 ")
        idle_since = time.monotonic()
        idle(router, third)
        time.sleep(max(0.0, idle_since + 0.8 * KEEP_ALIVE - time.monotonic()))
        fleet.signal_server(third, signal.SIGSTOP)
        try:
            asked = [send_short(router.port, opened) for _ in range(MOST)]
            time.sleep(max(0.0, idle_since + 1.1 * KEEP_ALIVE - time.monotonic()))
        finally:
            fleet.signal_server(third, signal.SIGCONT)
        for connection in asked:
            assert receive_all(connection)[0].startswith(b"HTTP/1.1 200 ")
    assert set(router.outcomes()) == {"ok"}
    assert counted(router, "ejections") == 0


def idle(router: RouterProcess, port: int) -> None:
    labels = {"replica": f"{HOST}:{port}", "state": "idle"}
    wait_until(
        lambda: total(router.port, "replicarouter_connector_connections", **labels) >= 1,
        "idle",
        deadline=SOON,
    )


@pytest.mark.parametrize("routed", [False, True], ids=["direct", "routed"])
def test_half_close_is_taken_for_leaving(
    hasty: StartRouter, third: int, opened: ExitStack, routed: bool
) -> None:
    router = hasty(third)
    connection = open_long(router.port if routed else third, opened)
    assert running(third) == 1
    connection.shutdown(socket.SHUT_WR)
    wait_until(lambda: running(third) == 0, "the engine has stopped", deadline=2.5)
    assert router.outcomes() == ({"client_gone": 1} if routed else {})


def test_error_that_a_dying_engine_puts_in_band_passes_and_counts(
    fleet: EngineFleet, hasty: StartRouter, victim: int, opened: ExitStack
) -> None:
    router = hasty(victim)
    direct, routed = open_long(victim, opened), open_long(router.port, opened)
    fleet.signal_core(victim, signal.SIGKILL)
    ends = [receive_until(one, b"\r\n0\r\n\r\n").partition(b'data: {"error"')[1:] for one in (direct, routed)]
    assert ends[0] == ends[1]
    assert ends[0][1].endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    wait_until(lambda: router.ledger()["accepted"] == 0, "it has ended", deadline=SOON)
    assert router.outcomes() == {"upstream_error": 1}
    assert counted(router, "attempts", replica=f"{HOST}:{victim}", result="upstream_error") == 1
