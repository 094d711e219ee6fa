"""What the router says of what happens to it: limits that are reached, engines that restart, a reader of its
log that is stuck."""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.client import chat, request
from tests.fakes.replica import OK, SSE_HEAD, FakeReplica, event, held, reply
from tests.fakes.running import Doors, StartRouter, free_port
from tests.fakes.wire import eventually


def events(caplog: pytest.LogCaptureFixture, name: str) -> list[dict[str, Any]]:
    return [record.__dict__ for record in caplog.records if record.getMessage() == name]


async def test_a_connector_limit_that_is_reached_is_told_once_with_its_number(
    start_router: StartRouter, caplog: pytest.LogCaptureFixture
) -> None:
    gate = asyncio.Event()
    router = await start_router(FakeReplica(held(b"", gate, OK), name="a"), connector={"limit": 1})
    asked = asyncio.gather(*(router.ask(chat(stream=False)) for _ in range(5)))
    await router.stage(sent=1, connecting=4)
    (line,) = events(caplog, "connector limit reached")
    assert (line["levelname"], line["limit"], line["replica"]) == ("WARNING", 1, "a")
    gate.set()
    await asked


async def test_a_full_queue_is_told_once_with_its_setting(
    start_router: StartRouter, caplog: pytest.LogCaptureFixture
) -> None:
    gate = asyncio.Event()
    replica = FakeReplica(held(b"", gate, OK), max_outstanding=1)
    router = await start_router(replica, admission={"max_queued": 1})
    waiting = [await router.begin(chat(stream=False))]
    await router.stage(sent=1)
    waiting.append(await router.begin(chat(stream=False)))
    await router.stage(sent=1, queued=1)
    for _ in range(3):
        (await router.ask(chat())).refused(429, "queue_full")
    (line,) = events(caplog, "requests refused")
    assert (line["reason"], line["setting"], line["model"]) == ("queue_full", "admission.max_queued", "m1")
    gate.set()
    for client in waiting:
        await client.answer()


def access_line(caplog: pytest.LogCaptureFixture) -> dict[str, Any]:
    (line,) = [one for one in events(caplog, "request") if one["outcome"] != "ok"]
    return line


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (
            chat(model="nobody\x1b-serves-it"),
            {"model": "other", "asked_model": "nobody\x1b-serves-it", "outcome": "model_not_found@receiving"},
        ),
        (
            request("POST", "/v1/chat/complete?key=secret", b"{}"),
            {"endpoint": "other", "path": "/v1/chat/complete", "outcome": "unknown_path@receiving"},
        ),
    ],
    ids=["model", "path"],
)
async def test_a_line_says_what_was_asked_for_in_vain_and_what_it_was_answered(
    start_router: StartRouter, caplog: pytest.LogCaptureFixture, asked: bytes, told: dict[str, str]
) -> None:
    router = await start_router(FakeReplica())
    with caplog.at_level(logging.INFO):
        answer = await router.ask(asked)
        await eventually(lambda: events(caplog, "request"), "the line is there")
    line = access_line(caplog)
    assert told.items() <= line.items()
    assert ("asked_model" in line, "path" in line) == ("asked_model" in told, "path" in told)
    assert (line["status"], line["bytes_out"]) == (404, len(answer.body.entity))


async def test_the_event_that_ends_a_broken_stream_is_counted(
    start_router: StartRouter, caplog: pytest.LogCaptureFixture
) -> None:
    router = await start_router(FakeReplica(reply(SSE_HEAD + event("1"), then="fin")))
    with caplog.at_level(logging.INFO):
        answer = await router.ask(chat())
        await eventually(lambda: events(caplog, "request"), "the line is there")
    assert b"replica_disconnected" in answer.body.chunks[-1]
    assert access_line(caplog)["bytes_out"] == len(answer.body.raw)


async def test_an_engine_that_restarted_is_told(
    start_router: StartRouter, caplog: pytest.LogCaptureFixture
) -> None:
    replica = FakeReplica(name="a")
    replica.probes.gauges = {"process_start_time_seconds": 1000.0}
    router = await start_router(replica)

    async def read() -> bool:
        return (await router.metrics()).value("engine_scrape_age_seconds", replica="a") > 0

    await eventually(read, "the engine was read")
    caplog.set_level(logging.INFO)
    replica.probes.gauges = {"process_start_time_seconds": 2000.0}
    await eventually(lambda: events(caplog, "engine restarted"), "the restart is told")
    (line,) = events(caplog, "engine restarted")
    assert (line["replica"], line["restarts"]) == ("a", 1)


# A log that nobody reads


class Deaf(Doors):
    """`replicarouter serve` with a pipe for its log."""

    def __init__(self, process: "subprocess.Popen[bytes]", port: int, admin_port: int) -> None:
        super().__init__(port, admin_port)
        self.process = process

    async def up(self) -> None:
        async def answers() -> bool:
            assert self.process.poll() is None
            try:
                return (await self.get("/ready")).status == 200
            except ConnectionRefusedError:
                return False

        await eventually(answers, "the router is ready", deadline=20.0)


@contextmanager
def served(folder: Path, replica: FakeReplica, log: int) -> Iterator[Deaf]:
    port, admin_port = free_port(), free_port()
    ports = ("--port", str(port), "--admin-port", str(admin_port))
    command = [sys.executable, "-m", "replicarouter", "serve", *ports, "--replica", replica.settings["url"]]
    with (folder / "out").open("wb") as output:
        process = subprocess.Popen([*command, "--log-format", "json"], stdout=output, stderr=log)
    try:
        yield Deaf(process, port, admin_port)
    finally:
        process.kill()
        process.wait()


async def test_a_stuck_reader_of_the_log_holds_up_no_request_and_loses_no_failure(tmp_path: Path) -> None:
    reader, descriptor = os.pipe()
    async with FakeReplica(reply(OK)) as replica:
        with served(tmp_path, replica, descriptor) as router, os.fdopen(reader, "rb") as log:
            os.close(descriptor)
            await router.up()
            client = await router.connect()
            long = "x" * 180
            for _ in range(400):  # About three times what a pipe holds.
                assert (await client.ask(chat(stream=False, headers={"X-Request-Id": long}))).status == 200
            (await client.ask(chat(model="unknown"))).refused(404, "model_not_found")
            await client.closed()
            router.process.send_signal(signal.SIGTERM)
            lines = [json.loads(line) for line in await asyncio.to_thread(log.readlines)]
            assert router.process.wait(10) == 0
    requests = [line for line in lines if line["event"] == "request"]
    assert [line["outcome"].split("@")[0] for line in requests] == ["ok"] * 400 + ["model_not_found"]
    assert lines[-1]["event"] == "draining"


async def test_a_log_that_nobody_reads_does_not_keep_the_router_from_ending(tmp_path: Path) -> None:
    reader, descriptor = os.pipe()
    async with FakeReplica(reply(OK)) as replica:
        with served(tmp_path, replica, descriptor) as router:
            os.close(descriptor)
            await router.up()
            client = await router.connect()
            for _ in range(400):
                await client.ask(chat(stream=False, headers={"X-Request-Id": "x" * 180}))
            await client.closed()
            router.process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(router.process.wait, 15) == 0
    os.close(reader)


async def test_lines_are_there_when_the_router_has_ended(tmp_path: Path) -> None:
    async with FakeReplica(reply(OK)) as replica:
        with (tmp_path / "log").open("wb") as file, served(tmp_path, replica, file.fileno()) as router:
            await router.up()
            for _ in range(20):
                await router.ask(chat(stream=False))
            router.process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(router.process.wait, 15)
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert len([line for line in lines if line["event"] == "request"]) == 20
