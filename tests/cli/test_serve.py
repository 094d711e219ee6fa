"""`replicarouter serve` as a process: its start-up block, its exit statuses, and how it winds down.
What it does while it serves is in the journeys."""

import asyncio
import re
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from replicarouter.cli import main
from tests.fakes.client import HOST, Client, chat, request
from tests.fakes.message import LAST_CHUNK
from tests.fakes.replica import SSE_HEAD, FakeReplica, event, held, silence
from tests.fakes.running import free_port
from tests.fakes.wire import eventually

STARTS = 20.0


class Process:
    """The command with its flags, and what it has said so far."""

    def __init__(self, folder: Path, flags: tuple[str, ...], descriptors: int | None) -> None:
        self._output, self._messages = folder / "output", folder / "messages"
        limited = ("sh", "-c", f'ulimit -n {descriptors} && exec "$@"', "sh") if descriptors else ()

        with self._output.open("wb") as output, self._messages.open("wb") as messages:
            self.process = subprocess.Popen(
                [*limited, sys.executable, "-m", "replicarouter", "serve", *flags],
                stdout=output,
                stderr=messages,
            )

    @property
    def output(self) -> str:
        return self._output.read_text()

    @property
    def messages(self) -> str:
        return self._messages.read_text()

    async def started(self) -> str:
        """Wait for the start-up block."""
        await eventually(lambda: "ready\n" in self.output or self.ended, "it has started", deadline=STARTS)
        assert not self.ended, self.messages
        return self.output

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    async def exit_status(self) -> int:
        await eventually(lambda: self.ended, "it ends", deadline=STARTS)
        return self.process.wait()


Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Start the command with these flags; `descriptors` is the most files it may have open."""

    def one(*flags: str, descriptors: int | None = None) -> Process:
        folder = tmp_path / str(len(started))
        folder.mkdir()
        started.append(Process(folder, flags, descriptors))
        return started[-1]

    started: list[Process] = []
    one.started = started  # type: ignore[attr-defined]
    return one


@pytest_asyncio.fixture(autouse=True)
async def nothing_left(start: Start) -> AsyncIterator[None]:
    yield
    for one in start.started:  # type: ignore[attr-defined]
        one.process.kill()
        one.process.wait()


def ports() -> tuple[int, tuple[str, ...]]:
    port, admin_port = free_port(), free_port()
    return port, ("--port", str(port), "--admin-port", str(admin_port))


# Starting


async def test_the_block_names_every_mismatch(start: Start, tmp_path: Path) -> None:
    config = tmp_path / "router.yaml"
    async with FakeReplica() as fake:
        dead = f"http://{HOST}:{free_port()}"
        config.write_text(
            f"replicas: [{{url: '{fake.settings['url']}', max_num_seqs: 300}}, '{dead}']\n"
            "connector: {limit: 100, keepalive: 30}\n"
        )
        port, flags = ports()
        text = await start("--config", str(config), *flags, descriptors=512).started()

    for line in (
        rf"  clients      http://127\.0\.0\.1:{port}",
        r"  policy       least-outstanding",
        r"  connector    limit 100; the fleet can run 556 requests \(256 assumed for 1 replica .*\)",
        r"  descriptors  512; a request takes two",
        r"  replicas     1 of 2 ready",
        rf"    {re.escape(fake.name)}  ready  m1",
        r"    127\.0\.0\.1:\d+  (loading|unhealthy) \(refuses connections\)  models unknown",
        r"  warning: connector\.limit 100 is below the 556 requests the fleet can run: .*",
        r"  warning: 512 file descriptors are fewer than the 1176 that a full fleet takes; .*",
        r"  warning: connector\.keepalive 30 is not below the 5 s .*",
        r"  warning: replica 127\.0\.0\.1:\d+ is not ready: refuses connections; .*",
    ):
        assert re.search(rf"^{line}$", text, re.MULTILINE), (line, text)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ((), "on SIGHUP, but no file is read"),
        (("--config", "{file}"), "on SIGHUP: {file}"),
        (("--config", "{file}", "--watch"), "on SIGHUP and on changes: {file}"),
    ],
)
async def test_the_block_says_when_settings_are_read_again(
    start: Start, tmp_path: Path, flags: tuple[str, ...], told: str
) -> None:
    config = tmp_path / "router.yaml"
    config.write_text("log: {level: error}\n")
    given = [flag.format(file=config) for flag in flags]
    text = await start(*URL, *given, *ports()[1]).started()
    assert f"  settings     read again {told.format(file=config)}\n" in text


@pytest.mark.parametrize("source", ["file", "settings"])
async def test_a_replica_is_of_the_file_only_where_the_file_lists_it(
    start: Start, tmp_path: Path, source: str
) -> None:
    config = tmp_path / "router.yaml"
    config.write_text(f"replicas: ['{URL[1]}']\n" if source == "file" else "log: {level: error}\n")
    given = () if source == "file" else URL
    admin_port = free_port()
    await start(
        "--config", str(config), *given, "--port", str(free_port()), "--admin-port", str(admin_port)
    ).started()
    client = await Client.connect(admin_port)
    answer = await client.ask(request("GET", "/admin/replicas"))
    assert [row["origin"] for row in answer.json()["replicas"]] == [source]
    await client.closed()


async def test_a_good_set_up_starts_without_a_warning(start: Start) -> None:
    _, flags = ports()
    async with FakeReplica() as fake:
        process = start("--replica", fake.settings["url"], *flags, descriptors=4096)
        assert "warning" not in await process.started()
        soft, hard = resource.prlimit(process.process.pid, resource.RLIMIT_NOFILE)
        assert soft == hard == 4096


# Not starting

URL = ("--replica", "http://127.0.0.1:9")
REFUSED = {
    "no replica": ((), "replicas"),
    "no URL": (("--replica", "127.0.0.1:9"), "127.0.0.1:9"),
    "the same twice": ((*URL, *URL), "replicas"),
    "a policy there is not": ((*URL, "--policy", "best"), "best"),
    "a port there is not": ((*URL, "--port", "70000"), "70000"),
    "a number that is none": ((*URL, "--connector-limit", "many"), "many"),
    "a flag there is not": ((*URL, "--conector-limit", "1"), "--conector-limit"),
    "a file there is not": (("--config", "/nonexistent/router.yaml"), "router.yaml"),
    "a door for everybody": ((*URL, "--admin-host", "0.0.0.0"), "admin"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_settings_are_named_in_one_message(capsys: pytest.CaptureFixture[str], name: str) -> None:
    flags, named = REFUSED[name]
    try:
        status: object = main(["serve", *flags])
    except SystemExit as left:
        status = left.code
    output, messages = capsys.readouterr()

    assert status == 2
    assert named in messages
    assert messages.startswith("replicarouter")
    assert output == ""


@pytest.mark.parametrize("flag", ["--port", "--admin-port"])
async def test_which_port_is_taken_is_said(start: Start, flag: str) -> None:
    other = "--admin-port" if flag == "--port" else "--port"
    with socket.create_server((HOST, 0)) as taken:
        port, free = taken.getsockname()[1], free_port()
        process = start(*URL, flag, str(port), other, str(free))

        assert await process.exit_status() == 1
        assert f"port in use: cannot listen on {HOST}:{port};" in process.messages
        assert process.messages.endswith(f"choose another {flag}\n")
        assert str(free) not in process.messages
        assert "Traceback" not in process.messages


async def test_an_address_of_somebody_else_is_said(start: Start) -> None:
    process = start(*URL, "--host", "192.0.2.1", "--port", "8080", "--admin-port", "0")

    assert await process.exit_status() == 1
    assert "cannot listen on 192.0.2.1:8080" in process.messages
    assert "Traceback" not in process.messages


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_before_it_serves_ends_it_well(start: Start, number: signal.Signals) -> None:
    async with FakeReplica() as fake:
        fake.probes.answering.clear()
        _, flags = ports()
        process = start("--replica", fake.settings["url"], *flags)
        await eventually(lambda: fake.probed, "it probes its replica", deadline=STARTS)
        process.process.send_signal(signal.SIGHUP)
        process.process.send_signal(number)

        assert await process.exit_status() == 0
        assert process.output == ""
        assert "Traceback" not in process.messages
        fake.probes.answering.set()


def test_nothing_to_watch_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", *URL, "--watch"]) == 2
    assert "--watch: there is no file to watch" in capsys.readouterr().err


# Winding down


async def status_of(port: int, raw: bytes) -> int:
    client = await Client.connect(port)
    try:
        return (await client.ask(raw)).status
    finally:
        await client.closed()


async def test_a_drain_finishes_what_runs_and_exits_0(start: Start) -> None:
    gate = asyncio.Event()
    script = held(SSE_HEAD + event("1"), gate, event("2") + LAST_CHUNK)
    async with FakeReplica(script) as fake:
        port, flags = ports()
        process = start("--replica", fake.settings["url"], *flags)
        await process.started()
        client = await Client.connect(port)
        await client.send(chat())
        await client.wire.expect(b"data: 1")
        process.process.send_signal(signal.SIGTERM)

        async def not_ready() -> bool:
            return await status_of(port, request("GET", "/ready")) == 503

        await eventually(not_ready, "it is not ready any more")
        assert not process.ended
        gate.set()
        answer = await client.answer()
        assert (answer.body.chunks, answer.ended) == ([b"data: 1\n\n", b"data: 2\n\n"], "clean")
        assert await process.exit_status() == 0
        await client.closed()
    assert "requests cut" not in process.messages


async def test_a_drain_that_takes_too_long_cuts_and_says_so(start: Start, tmp_path: Path) -> None:
    config = tmp_path / "router.yaml"
    async with FakeReplica(silence) as fake:
        config.write_text(f"replicas: ['{fake.settings['url']}']\ndrain: {{timeout: 0.2}}\n")
        port, flags = ports()
        process = start("--config", str(config), *flags)
        await process.started()
        client = await Client.connect(port)
        await client.send(chat())
        await fake.received()
        process.process.send_signal(signal.SIGTERM)
        await process.exit_status()
        await client.gone()
        await fake.requests[0].aborted()
        await client.closed()
    assert "requests cut" in process.messages


async def test_a_second_signal_exits_at_once(start: Start) -> None:
    async with FakeReplica(silence) as fake:
        port, flags = ports()
        process = start("--replica", fake.settings["url"], *flags)
        await process.started()
        client = await Client.connect(port)
        await client.send(chat())
        await fake.received()
        process.process.send_signal(signal.SIGTERM)
        await eventually(lambda: "draining" in process.messages, "it drains")
        process.process.send_signal(signal.SIGINT)

        assert await process.exit_status() == 1
        await client.closed()
    assert "Traceback" not in process.messages
