"""Queues, aborts and deaths of real engines, seen through the router."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import openai
import pytest
from openai import Stream
from openai.types.chat import ChatCompletionChunk

from tests.fakes.client import request
from tests.real_engine.rig import (
    CONTEXT,
    HOST,
    MODEL,
    SLOTS,
    EngineFleet,
    RouterProcess,
    metric,
    running,
    total,
    wait_until,
    waiting,
)
from tests.real_engine.samples import chat

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(240)]

SOON = 10.0
ABORTED_WITHIN = 2.5
"""Seconds from the client's leaving to the engine's gauge at 0; 0.05 is usual where nothing else runs."""

LONG = CONTEXT - 100
"""Tokens of an answer that holds its slot for some ten seconds, unless aborted."""

TOKENS = 16
"""Tokens of a short answer."""


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    """Holds what a test opens; what is still open is closed afterwards."""
    with ExitStack() as stack:
        yield stack


def open_stream(client: openai.OpenAI) -> Stream[ChatCompletionChunk]:
    """A stream that goes on until closed; returned as soon as its head is there."""
    return client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "Tell me about lists."}],
        max_tokens=LONG,
        extra_body={"ignore_eos": True},
        stream=True,
    )


def fill(client: openai.OpenAI, fleet: EngineFleet, opened: ExitStack) -> list[Stream[ChatCompletionChunk]]:
    """Give every slot of every engine a stream, each with its first text out."""
    streams = [opened.enter_context(open_stream(client)) for _ in range(SLOTS * len(fleet.ports))]
    for stream in streams:
        next(chunk for chunk in stream if chunk.choices[0].delta.content)
    return streams


def send_chat(router: RouterProcess, opened: ExitStack, *, stream: bool) -> socket.socket:
    """A long request on a connection of its own."""
    sample = chat(stream=stream, max_tokens=LONG, ignore_eos=True)
    connection = opened.enter_context(socket.create_connection((HOST, router.port), timeout=SOON))
    connection.sendall(request("POST", sample.path, sample.raw))
    return connection


def receive_until(connection: socket.socket, marker: bytes) -> bytes:
    """All that comes, up to a read that holds the marker."""
    received = b""
    while marker not in received:
        data = connection.recv(65536)
        assert data, f"ended before {marker!r}: {received[-300:]!r}"
        received += data
    return received


def outstanding(router: RouterProcess, fleet: EngineFleet) -> list[float]:
    """Requests that the router has at each replica."""
    name = "replicarouter_requests_outstanding"
    return [total(router.port, name, replica=f"{HOST}:{port}") for port in fleet.ports]


def wait_until_shown(router: RouterProcess, fleet: EngineFleet, name: str, count: float) -> None:
    """Until the router has read this gauge at this count from every engine."""
    replicas = [f"{HOST}:{port}" for port in fleet.ports]
    wait_until(
        lambda: all(metric(router.port, f"replicarouter_{name}", replica=one) == count for one in replicas),
        f"{name} is {count} for each replica",
        deadline=SOON,
    )


def test_streams_spread_over_both_replicas(
    client: openai.OpenAI, fleet: EngineFleet, router: RouterProcess, opened: ExitStack
) -> None:
    fill(client, fleet, opened)
    assert [running(port) for port in fleet.ports] == [SLOTS, SLOTS]
    assert [waiting(port) for port in fleet.ports] == [0, 0]
    wait_until_shown(router, fleet, "engine_requests_running", SLOTS)
    assert outstanding(router, fleet) == [SLOTS, SLOTS]


def test_queues_of_the_engines_are_shown_and_explain_every_request(
    client: openai.OpenAI, fleet: EngineFleet, router: RouterProcess, opened: ExitStack
) -> None:
    for _ in range(2 * SLOTS * len(fleet.ports)):
        opened.enter_context(open_stream(client))
    wait_until_shown(router, fleet, "engine_requests_running", SLOTS)
    wait_until_shown(router, fleet, "engine_requests_waiting", SLOTS)
    assert outstanding(router, fleet) == [2 * SLOTS, 2 * SLOTS]
    wait_until_shown(router, fleet, "requests_unexplained", 0)
    assert total(router.port, "replicarouter_proxy_limited") == 0
    opened.close()
    for name in ("engine_requests_running", "engine_requests_waiting", "requests_unexplained"):
        wait_until_shown(router, fleet, name, 0)
    assert router.ledger()["accepted"] == 0


def test_token_counts_are_the_engines(
    client: openai.OpenAI, fleet: EngineFleet, router: RouterProcess
) -> None:
    def ask() -> None:
        client.completions.create(
            model=MODEL, prompt="The list", max_tokens=TOKENS, extra_body={"ignore_eos": True}
        )

    def counts() -> tuple[float, float]:
        engines = sum(total(port, "vllm:generation_tokens_total") for port in fleet.ports)
        return engines, total(router.port, "replicarouter_tokens_total", kind="completion")

    ask()
    wait_until(fleet.is_idle, "the engines are idle", deadline=SOON)
    engines, routed = counts()
    ask()
    after = (engines + TOKENS, routed + TOKENS)
    wait_until(lambda: counts() == after, f"both have counted {TOKENS} more", deadline=SOON)


@pytest.mark.parametrize("stream", [False, True])
def test_client_that_leaves_frees_its_slot(
    fleet: EngineFleet, router: RouterProcess, opened: ExitStack, stream: bool
) -> None:
    gone = router.ledger()["finished"].get("client_gone", 0)
    connection = send_chat(router, opened, stream=stream)
    wait_until(lambda: sum(map(running, fleet.ports)) == 1, "the engine works on it", deadline=SOON)
    connection.close()
    wait_until(fleet.is_idle, "the engine has stopped", deadline=ABORTED_WITHIN)
    assert router.ledger()["accepted"] == 0
    assert router.ledger()["finished"]["client_gone"] == gone + 1


def test_client_that_leaves_an_engines_queue_frees_its_place(
    client: openai.OpenAI, fleet: EngineFleet, router: RouterProcess, opened: ExitStack
) -> None:
    fill(client, fleet, opened)
    connection = send_chat(router, opened, stream=True)
    wait_until(lambda: sum(map(waiting, fleet.ports)) == 1, "it waits in an engine", deadline=SOON)
    connection.close()
    wait_until(lambda: sum(map(waiting, fleet.ports)) == 0, "no longer", deadline=ABORTED_WITHIN)
    assert [running(port) for port in fleet.ports] == [SLOTS, SLOTS]


def test_comment_that_keeps_a_queued_stream_alive_is_passed_on_before_its_first_token(
    client: openai.OpenAI, fleet: EngineFleet, router: RouterProcess, opened: ExitStack
) -> None:
    streams = fill(client, fleet, opened)
    connection = send_chat(router, opened, stream=True)
    assert b"data: " not in receive_until(connection, b": keep-alive\n\n")
    for stream in streams:
        stream.close()
    receive_until(connection, b'"content":"<think>"')
