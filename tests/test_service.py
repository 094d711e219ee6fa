"""systemd's notifications on a real socket: from the module itself, and from `serve` as a process."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest
import pytest_asyncio

from replicarouter.service import EXTENSION, PATIENCE, STATUS_PERIOD, ServiceManager
from replicarouter.tasks import TaskSet
from tests.fakes.client import HOST, Client, chat
from tests.fakes.message import LAST_CHUNK
from tests.fakes.replica import SSE_HEAD, FakeReplica, event, held
from tests.fakes.running import free_port
from tests.fakes.wire import eventually

STARTS = 20.0


class Inbox:
    """The service manager's end: what it was told, a mapping for each message, with the time it was read."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.messages: list[dict[str, str]] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)

    def read(self) -> list[dict[str, str]]:
        """Everything said so far."""
        while True:
            try:
                text = self._socket.recv(65536).decode()
            except BlockingIOError:
                return self.messages
            self.messages.append(dict(line.split("=", 1) for line in text.splitlines()))

    def having(self, name: str) -> list[dict[str, str]]:
        return [message for message in self.read() if name in message]

    async def told(self, name: str, count: int = 1) -> dict[str, str]:
        """Wait for the `count`-th message with this assignment."""
        await eventually(lambda: len(self.having(name)) >= count, f"{count} × {name}", deadline=STARTS)
        return self.having(name)[count - 1]

    async def status(self, text: str) -> None:
        await eventually(lambda: self.having("STATUS")[-1:][0]["STATUS"] == text, text)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def inbox(tmp_path: Path) -> Iterator[Inbox]:
    inbox = Inbox(str(tmp_path / "notify"))
    yield inbox
    inbox.close()


@pytest_asyncio.fixture
async def tasks() -> AsyncIterator[TaskSet]:
    tasks = TaskSet()
    yield tasks
    await tasks.close()


# The module


def test_nothing_is_sent_without_a_service_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(*_: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", opened)
    manager = ServiceManager.of({"WATCHDOG_USEC": "1000"}, os.getpid())
    manager.ready("serving")
    manager.reloading()
    manager.stopping("draining")


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_both_kinds_of_sockets_are_reached(tmp_path: Path, kind: str) -> None:
    name = str(tmp_path / "notify")
    inbox = Inbox(name if kind == "path" else f"@replicarouter-test-{os.getpid()}{name}")
    ServiceManager(inbox.address).ready("serving")
    assert inbox.read() == [{"READY": "1", "MAINPID": str(os.getpid()), "STATUS": "serving"}]
    inbox.close()


def test_a_reload_tells_the_time_in_the_same_message(inbox: Inbox) -> None:
    before = time.monotonic_ns() // 1000
    ServiceManager(inbox.address).reloading()
    (message,) = inbox.read()
    assert message["RELOADING"] == "1"
    assert before <= int(message["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000


def test_who_stops_is_not_ready_again(inbox: Inbox) -> None:
    manager = ServiceManager(inbox.address)
    manager.stopping("draining 2 requests")
    manager.reloading()
    manager.ready("serving")
    (message,) = inbox.read()
    assert message == {
        "STOPPING": "1",
        "STATUS": "draining 2 requests",
        "EXTEND_TIMEOUT_USEC": str(EXTENSION * 1_000_000),
    }


async def test_the_status_is_told_when_it_changes(inbox: Inbox, tasks: TaskSet) -> None:
    texts = ["one", "one", "two"]
    manager = ServiceManager(inbox.address, watchdog=0.02)
    tasks.start(manager.keep_alive(lambda: texts.pop(0) if len(texts) > 1 else texts[0]), "keep alive")
    await inbox.told("WATCHDOG", 5)
    assert [message["STATUS"] for message in inbox.having("STATUS")] == ["one", "two"]


async def test_there_is_no_sign_of_life_while_the_event_loop_hangs(inbox: Inbox, tasks: TaskSet) -> None:
    manager = ServiceManager(inbox.address, watchdog=0.02)
    tasks.start(manager.keep_alive(lambda: "serving"), "keep alive")
    await inbox.told("WATCHDOG", 3)
    seen = len(inbox.having("WATCHDOG"))
    hung_until = time.monotonic() + 0.2
    while time.monotonic() < hung_until:
        assert len(inbox.having("WATCHDOG")) == seen
    await inbox.told("WATCHDOG", seen + 2)


async def test_a_drain_asks_for_time_again_and_again(
    inbox: Inbox, tasks: TaskSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("replicarouter.service.DRAIN_PERIOD", 0.01)
    tasks.start(ServiceManager(inbox.address).keep_draining(lambda: "draining 1 requests"), "drain")
    await inbox.told("EXTEND_TIMEOUT_USEC", 3)
    assert len(inbox.having("STATUS")) == 1


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({}, 0.0),
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "8"}, 0.0),
        ({"WATCHDOG_USEC": "soon"}, 0.0),
        ({"WATCHDOG_USEC": ""}, 0.0),
        ({"WATCHDOG_USEC": "0"}, 0.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": ""}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "junk"}, 0.0),
        ({"WATCHDOG_USEC": "9" * 5000}, 0.0),
    ],
)
async def test_signs_of_life_are_sent_only_if_this_process_owes_them(
    inbox: Inbox, tasks: TaskSet, environ: Mapping[str, str], seconds: float
) -> None:
    manager = ServiceManager.of({"NOTIFY_SOCKET": inbox.address, **environ}, 7)
    manager.ready("serving")
    tasks.start(manager.keep_alive(lambda: "changed"), "keep alive")
    message = await inbox.told("STATUS", 2)
    assert ("WATCHDOG" in message) == bool(seconds)


@pytest.mark.parametrize(("watchdog", "period"), [(0.0, 5.0), (1.0, 0.5), (30.0, 5.0), (1e-6, 0.1)])
def test_signs_of_life_come_at_least_twice_in_the_time_for_one_but_not_without_end(
    watchdog: float, period: float
) -> None:
    assert ServiceManager("/nowhere/notify", watchdog).period == period


@pytest.mark.parametrize("address", ["/nowhere/notify", "@nobody-listens-here", "x" * 200, "vsock:2:1"])
def test_a_service_manager_that_cannot_be_reached_is_complained_of_once(
    caplog: pytest.LogCaptureFixture, address: str
) -> None:
    manager = ServiceManager(address)
    manager.ready("serving")
    manager.ready("serving")
    assert [record.message for record in caplog.records] == ["service manager not told"]


@pytest.mark.parametrize("wanted", ["9" * 5000, "9" * 400, "soon", "-1", "1e6", "1.5", "٣", " 1", "\udcff"])
def test_a_time_that_is_none_is_complained_of_once(caplog: pytest.LogCaptureFixture, wanted: str) -> None:
    manager = ServiceManager.of({"WATCHDOG_USEC": wanted}, 7)
    assert manager.period == STATUS_PERIOD
    (warning,) = caplog.records
    assert warning.message == "watchdog not understood"
    assert len(warning.__dict__["wanted"]) <= 20


@pytest.mark.parametrize(
    "environ",
    [
        {"NOTIFY_SOCKET": "", "WATCHDOG_USEC": ""},
        {"WATCHDOG_USEC": "soon", "WATCHDOG_PID": "8"},
        {"WATCHDOG_USEC": "18446744073709551615"},
    ],
)
def test_what_is_not_meant_for_this_process_is_not_complained_of(
    caplog: pytest.LogCaptureFixture, environ: Mapping[str, str]
) -> None:
    manager = ServiceManager.of(environ, 7)
    manager.ready("serving")
    assert manager.period == STATUS_PERIOD
    assert caplog.records == []


def test_a_service_manager_without_room_does_not_hold_up_who_talks(
    inbox: Inbox, caplog: pytest.LogCaptureFixture
) -> None:
    manager = ServiceManager(inbox.address)
    begun = time.monotonic()
    while not caplog.records:
        manager._repeat("serving", "WATCHDOG=1")
        assert time.monotonic() - begun < PATIENCE / 2


# The process


class Served:
    """`replicarouter serve` in front of one replica, started as systemd would."""

    def __init__(self, inbox: Inbox, folder: Path, replica: str, **environ: str) -> None:
        self.port, admin_port = free_port(), free_port()
        self.config = folder / "router.yaml"
        self.config.write_text(f"replicas: ['{replica}']\nadmin: {{port: {admin_port}}}\n")
        command = ("-m", "replicarouter", "serve", "--config", str(self.config), "--port", str(self.port))
        self.process = subprocess.Popen(
            [sys.executable, *command],
            env={**os.environ, "NOTIFY_SOCKET": inbox.address, **environ},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def listens(self) -> bool:
        with socket.socket() as end:
            return end.connect_ex((HOST, self.port)) == 0

    async def exit_status(self) -> int:
        await eventually(lambda: self.process.poll() is not None, "it ends", deadline=STARTS)
        return self.process.wait()

    def __enter__(self) -> "Served":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


async def test_serve_is_ready_when_it_has_probed_and_listens(inbox: Inbox, tmp_path: Path) -> None:
    async with FakeReplica() as fake:
        fake.probes.answering.clear()
        with Served(inbox, tmp_path, fake.settings["url"]) as served:
            await eventually(lambda: fake.probed, "it is probed", deadline=STARTS)
            assert not served.listens()
            assert inbox.read() == []

            fake.probes.answering.set()
            message = await inbox.told("READY")
            assert served.listens()
            assert message["MAINPID"] == str(served.process.pid)
            assert message["STATUS"] == "1 of 1 replica ready, 0 requests in flight"


async def test_serve_tells_of_reloads_of_its_life_and_of_its_drain(inbox: Inbox, tmp_path: Path) -> None:
    gate = asyncio.Event()
    script = held(SSE_HEAD + event("1"), gate, event("2") + LAST_CHUNK)
    async with FakeReplica(script) as fake:
        with Served(inbox, tmp_path, fake.settings["url"], WATCHDOG_USEC="100000") as served:
            await inbox.told("READY")
            client = await Client.connect(served.port)
            await client.send(chat())
            await client.wire.expect(b"data: 1")
            await inbox.status("1 of 1 replica ready, 1 request in flight")
            await inbox.told("WATCHDOG", 3)

            served.process.send_signal(signal.SIGHUP)
            reloading, ready = await inbox.told("RELOADING"), await inbox.told("READY", 2)
            assert int(reloading["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000
            assert inbox.messages.index(reloading) < inbox.messages.index(ready)
            assert ready["STATUS"] == "1 of 1 replica ready, 1 request in flight"

            served.config.write_text("no such setting: 1\n")
            served.process.send_signal(signal.SIGHUP)
            assert "settings not reloaded" in (await inbox.told("READY", 3))["STATUS"]

            served.process.send_signal(signal.SIGTERM)
            stopping = await inbox.told("STOPPING")
            assert stopping["STATUS"] == "draining 1 request"
            behind = inbox.messages.index(stopping) + 1
            await eventually(
                lambda: (
                    {"WATCHDOG", "EXTEND_TIMEOUT_USEC"}
                    <= {name for message in inbox.read()[behind:] for name in message}
                ),
                "it lives and asks for time while it drains",
            )
            gate.set()
            assert (await client.answer()).ended == "clean"
            await client.closed()
            assert await served.exit_status() == 0
    assert not [message for message in inbox.read()[behind:] if "READY" in message]
