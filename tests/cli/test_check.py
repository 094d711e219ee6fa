"""`replicarouter check` against simulated engines and a router, each a process of its own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from replicarouter.acceptance import CHECKS, CheckError, Place, Scene
from replicarouter.cli import main
from tests.fakes.client import HOST
from tests.fakes.running import free_port
from tests.real_engine.rig import answers, get, metric, wait_until

COMMAND = (sys.executable, "-m", "replicarouter")
STARTS = 20.0


@dataclass(frozen=True, slots=True)
class Fleet:
    """Two engines, and a router in front of them."""

    engines: tuple[int, ...]
    router: str
    admin: str

    @property
    def engine(self) -> str:
        return f"http://{HOST}:{self.engines[0]}"

    @property
    def running(self) -> float:
        """Requests that the engines run, by their own counts."""
        return sum(metric(port, "vllm:num_requests_running") or 0.0 for port in self.engines)


@contextmanager
def running_fleet(engine: tuple[str, ...], serve: tuple[str, ...]) -> Iterator[Fleet]:
    engines = free_port(), free_port()
    router, admin = free_port(), free_port()
    servers: list[tuple[str, ...]] = [("engine", "--port", str(port), *engine) for port in engines]
    listed = [f"--replica=http://{HOST}:{port}" for port in engines]
    servers.append(("serve", *listed, f"--port={router}", f"--admin-port={admin}", *serve))
    processes = [
        subprocess.Popen((*COMMAND, *words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for words in servers
    ]
    try:
        wait_until(lambda: answers(router, "/ready"), "the router is ready", deadline=STARTS)
        wait_until(lambda: _ready(admin) == 2, "both replicas are ready", deadline=STARTS)
        yield Fleet(engines, *(f"http://{HOST}:{port}" for port in (router, admin)))
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    """The router lets few requests through."""
    with running_fleet(("--profile", "tiny-cpu"), ("--connector-limit=4", "--policy=prefix-hash")) as running:
        yield running


@pytest.fixture(scope="module")
def slow_fleet() -> Iterator[Fleet]:
    """Streams take a second and more."""
    with running_fleet(("--speed", "0.5"), ()) as running:
        yield running


def _ready(admin: int) -> int:
    rows = json.loads(get(admin, "/admin/replicas"))["replicas"]
    return [row["state"] for row in rows].count("ready")


def started(*words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        (*COMMAND, "check", *words),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")},
    )


def check(*words: str) -> "subprocess.CompletedProcess[str]":
    with started(*words) as process:
        output, messages = process.communicate(timeout=50)
    return subprocess.CompletedProcess(words, process.returncode, output, messages)


def test_a_fleet_behind_a_router_too_narrow_for_it_fails_at_that_and_nothing_else(fleet: Fleet) -> None:
    done = check(fleet.router, "--admin", fleet.admin, "--tools", "--concurrency", "8", "--json")
    told = json.loads(done.stdout)
    statuses = {one["name"]: one["status"] for one in told["results"]}
    # Whether four of eight short streams count as held up is a matter of the machine's speed.
    assert statuses.pop("concurrency") in {"pass", "fail"}
    assert {name: status for name, status in statuses.items() if status != "pass"} == {"connector": "fail"}
    assert {*statuses, "concurrency"} == {*CHECKS}
    assert (done.returncode, told["accepted"], done.stderr) == (1, False, "")
    assert len(told["replicas"]) == 2


def test_an_engine_alone_is_accepted_in_a_table_of_80_columns(fleet: Fleet) -> None:
    done = check(fleet.engine, "--concurrency", "2")
    assert done.returncode == 0, done.stdout
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    shown = {line.split()[0] for line in done.stdout.splitlines() if line[:1].isalpha()}
    assert shown >= {*CHECKS, "accepted:"}


@pytest.mark.parametrize(
    ("words", "streams"),
    [(("--only", "concurrency", "--concurrency", "8"), 4), (("--only", "needle", "--needle", "20000"), 3)],
)
def test_an_interrupted_check_leaves_no_stream_running(
    slow_fleet: Fleet, words: tuple[str, ...], streams: int
) -> None:
    with started(slow_fleet.router, "--admin", slow_fleet.admin, *words) as process:
        try:
            wait_until(lambda: slow_fleet.running >= streams, "streams run", deadline=STARTS)
            process.send_signal(signal.SIGINT)
            wait_until(lambda: not slow_fleet.running, "no stream runs", deadline=1.0)
            _, messages = process.communicate(timeout=5)
        finally:
            process.kill()
    assert (process.returncode, messages) == (130, "replicarouter: interrupted; no stream is left open\n")
    assert not slow_fleet.running


def test_a_replicas_key_from_the_environment_is_no_key_for_all(
    fleet: Fleet, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    places: list[Place] = []

    async def nowhere(place: Place, *_: object) -> Scene:
        places.append(place)
        raise CheckError("nobody answers")

    monkeypatch.setattr("replicarouter.cli.check.discover", nowhere)
    monkeypatch.setenv("VLLM_API_KEY", "sk-environment")
    for more in ((), ("--replica-key", "sk-flag")):
        assert main(["check", fleet.router, *more]) == 1
    keys = [(place.replica_key, place.spare_key) for place in places]
    assert keys == [("", "sk-environment"), ("sk-flag", "sk-environment")]
    assert "sk-" not in capsys.readouterr().err


def test_the_help_says_where_secrets_are_sent(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["check", "--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert "to another host only if --admin names it" in told
    assert "VLLM_API_KEY only to those that have answered 401 without one" in told


def test_nobody_at_the_address_is_status_1_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "http://127.0.0.1:1"]) == 1
    output, messages = capsys.readouterr()
    assert output == ""
    assert messages == (
        "replicarouter: http://127.0.0.1:1 cannot be checked: 127.0.0.1:1: refuses connections\n"
    )


def test_the_checks_are_listed_with_what_they_send(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--list"]) == 0
    listed = capsys.readouterr().out
    assert all(f"{name} " in listed and check.costs in listed for name, check in CHECKS.items())


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("ftp://example.org",),
        ("http://user:secret@example.org",),
        ("http://example.org?x=1",),
        ("http://example.org", "--concurrency", "0"),
        ("http://example.org", "--needle", "x"),
        ("http://example.org", "--timeout", "0"),
        ("http://example.org", "--only", "nothing"),
        ("http://example.org", "--skip", "nothing"),
        ("http://example.org", "--router-only", "--replica", "http://example.org"),
    ],
)
def test_bad_usage_is_status_2_and_tells_no_secret(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["check", *words])
    assert left.value.code == 2
    assert "secret" not in capsys.readouterr().err


def test_a_fleet_whose_replicas_cannot_be_seen_is_not_accepted(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["check", fleet.router, "--only", "replicas"]
    assert main([*words, "--admin", "http://127.0.0.1:1"]) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert "a router; its replicas are NOT known: the admin API at http://127.0.0.1:1 does not answer" in told
    assert "not accepted: 1 failed" in told
    assert main([*words, "--router-only"]) == 0


def test_the_operators_port_is_status_1_in_one_line(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", fleet.admin]) == 1
    output, messages = capsys.readouterr()
    assert output == ""
    assert messages.endswith(f"operator's port; check the clients' port, such as http://{HOST}:8080\n")
    assert messages.count("\n") == 1
