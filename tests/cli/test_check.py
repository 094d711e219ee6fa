"""`replicarouter check` against simulated engines and a router, each a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from replicarouter.acceptance import CHECKS
from replicarouter.cli import main
from tests.fakes.client import HOST
from tests.fakes.running import free_port
from tests.real_engine.rig import answers, get, wait_until

COMMAND = (sys.executable, "-m", "replicarouter")
STARTS = 20.0


@dataclass(frozen=True, slots=True)
class Fleet:
    """Two engines, and a router in front of them that lets few requests through."""

    engine: str
    router: str
    admin: str


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    first, router, admin = free_port(), free_port(), free_port()
    engines = [first, free_port()]
    servers: list[tuple[str, ...]] = [
        ("engine", "--port", str(port), "--profile", "tiny-cpu") for port in engines
    ]
    listed = [f"--replica=http://{HOST}:{port}" for port in engines]
    ports = (f"--port={router}", f"--admin-port={admin}")
    servers.append(("serve", *listed, *ports, "--connector-limit=4", "--policy=prefix-hash"))
    processes = [
        subprocess.Popen((*COMMAND, *words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for words in servers
    ]
    try:
        wait_until(lambda: answers(router, "/ready"), "the router is ready", deadline=STARTS)
        wait_until(lambda: _ready(admin) == 2, "both replicas are ready", deadline=STARTS)
        yield Fleet(*(f"http://{HOST}:{port}" for port in (first, router, admin)))
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _ready(admin: int) -> int:
    rows = json.loads(get(admin, "/admin/replicas"))["replicas"]
    return [row["state"] for row in rows].count("ready")


def check(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        (*COMMAND, "check", *words),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        env={name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")},
    )


def test_a_fleet_behind_a_router_too_narrow_for_it_fails_at_that_and_nothing_else(fleet: Fleet) -> None:
    done = check(fleet.router, "--admin", fleet.admin, "--tools", "--concurrency", "8", "--json")
    told = json.loads(done.stdout)
    statuses = {one["name"]: one["status"] for one in told["results"]}
    # Whether four of eight short streams count as held up is a matter of the machine's speed.
    assert statuses.pop("concurrency") in {"pass", "warn"}
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
