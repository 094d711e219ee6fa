"""`replicarouter demo` as a process of its own, with the processes it starts."""

import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from replicarouter.cli import main

COMMAND = (sys.executable, "-m", "replicarouter", "demo")
SMALL = ("--users", "6", "--replicas", "2")
DEADLINE = 40.0
CROWDED = "The router gets too little of the processor: "
"""What a router says, and rightly so, on a machine that is busy otherwise."""


@contextmanager
def demo(*flags: str) -> Iterator["subprocess.Popen[str]"]:
    """A demonstration in a process group of its own; whatever is left of the group is killed."""
    process = subprocess.Popen(
        (*COMMAND, *flags),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "REPLICAROUTER_CONNECTOR__LIMIT": "nonsense"},
    )
    with process:
        try:
            yield process
        finally:
            kill_group(process.pid)


def kill_group(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return


def finish(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    """Exit status, output and messages of a demonstration that ends; nothing of its group may be left."""
    output, messages = process.communicate(timeout=DEADLINE)
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
    return process.returncode, output, messages


def until_first_look(process: "subprocess.Popen[str]") -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if "receiving" in line:
            return
    raise AssertionError(f"it ended before its first look: {process.communicate()[1]}")


def children(process: "subprocess.Popen[str]") -> list[int]:
    """The processes it has started: the engines, then the router."""
    page = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(pid) for pid in page.read_text().split()]


def accounted(output: str) -> tuple[int, int, int]:
    """Received, finished and in flight, from the summary."""
    match = re.search(r"(\d+) received = (\d+) finished \+ (\d+) in flight: all accounted for", output)
    assert match is not None, output
    received, finished, in_flight = (int(number) for number in match.groups())
    assert received == finished + in_flight
    return received, finished, in_flight


def looks(output: str) -> list[dict[str, int]]:
    """The counts of each look by name."""
    lines = [line for line in output.splitlines() if "receiving" in line]
    return [{name: int(count) for name, count in re.findall(r"([a-z_]+) (\d+)\b", line)} for line in lines]


def test_demo_ends_by_itself_and_accounts_for_every_request() -> None:
    with demo("--users", "12", "--replicas", "2", "--seconds", "4") as process:
        status, output, messages = finish(process)
    assert (status, messages) == (0, "")
    received, finished, in_flight = accounted(output)
    assert received >= 12
    assert finished >= 1
    assert 0 < in_flight <= 12
    assert len(looks(output)) >= 3
    assert {look["proxy_limited"] for look in looks(output)} == {0}
    assert " 0 failed" in output
    last = output.splitlines()[-1]
    assert last.startswith(("Nothing limits but the engines' own speed: ", CROWDED))
    assert "\x1b" not in output


def test_connector_limit_is_seen_and_named() -> None:
    flags = ("--users", "24", "--replicas", "2", "--connector-limit", "8", "--seconds", "4")
    with demo(*flags) as process:
        status, output, messages = finish(process)
    assert (status, messages) == (0, "")
    assert accounted(output)[0] >= 24
    held = [look for look in looks(output) if look["connecting"] == 16]
    assert held, output
    assert {look["sent"] + look["streaming"] for look in held} <= {7, 8}
    assert 1 in {look["proxy_limited"] for look in held}
    peaks = re.search(r"peaks +(\d+) running in the engines, (\d+) connecting, proxy_limited 1", output)
    assert peaks is not None, output
    # the readings of two engines are not of one moment
    assert 4 <= int(peaks[1]) <= 12
    assert 16 <= int(peaks[2]) <= 18
    last = output.splitlines()[-1]
    assert last.startswith("The router's connector limit holds requests back: running ")
    assert last.endswith(
        "connector.limit: now 8; set it to at least 64 (--connector-limit), or 0 for no limit."
    )


def test_status_page_is_named_and_is_there() -> None:
    with demo(*SMALL) as process:
        assert process.stdout is not None
        url = next(line.split()[1] for line in process.stdout if line.startswith("  status "))
        with urlopen(url, timeout=DEADLINE) as page:
            assert page.headers["Content-Type"].startswith("text/html")
            assert b"<title>replicarouter</title>" in page.read()
        process.send_signal(signal.SIGTERM)
        assert finish(process)[0] == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signal_ends_it_with_a_summary(number: signal.Signals) -> None:
    with demo(*SMALL) as process:
        until_first_look(process)
        process.send_signal(number)
        status, output, messages = finish(process)
    assert (status, messages) == (0, "")
    assert 0 < accounted(output)[2] <= 6


def test_interrupt_from_a_terminal_reaches_the_summary() -> None:
    """Ctrl-C goes to every process of the group."""
    with demo(*SMALL) as process:
        until_first_look(process)
        os.killpg(process.pid, signal.SIGINT)
        status, output, messages = finish(process)
    assert (status, messages) == (0, "")
    assert 0 < accounted(output)[2] <= 6
    assert " 0 failed" in output


def test_signal_during_the_start_ends_it_too() -> None:
    with demo(*SMALL) as process:
        end = time.monotonic() + DEADLINE
        while not children(process):
            assert time.monotonic() < end
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        status, output, messages = finish(process)
    assert (status, output, messages) == (0, "stopped before the first request\n", "")


@pytest.mark.parametrize(("index", "name"), [(0, "engines"), (1, "router")])
def test_death_of_a_child_ends_it_with_a_message(index: int, name: str) -> None:
    with demo(*SMALL) as process:
        until_first_look(process)
        os.kill(children(process)[index], signal.SIGKILL)
        status, _, messages = finish(process)
    assert status == 1
    assert messages.startswith(f"replicarouter: the {name} ended (SIGKILL)")


def test_child_that_cannot_start_is_quoted() -> None:
    with demo("--replicas", "70000") as process:
        status, output, messages = finish(process)
    assert (status, output) == (1, "")
    assert messages.startswith("replicarouter: the engines ended (exit status 2): count is 70000; accepted: ")


def test_reader_that_leaves_ends_it() -> None:
    with demo(*SMALL) as process:
        until_first_look(process)
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(DEADLINE) == 1
        with pytest.raises(ProcessLookupError):
            os.killpg(process.pid, 0)


def test_terminal_shows_a_table() -> None:
    ours, theirs = pty.openpty()
    environ = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "40"}
    with subprocess.Popen((*COMMAND, *SMALL, "--seconds", "2"), stdout=theirs, env=environ) as process:
        os.close(theirs)
        try:
            written = read_terminal(ours)
            assert process.wait(DEADLINE) == 0
        finally:
            process.kill()
            os.close(ours)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written)
    assert re.search(r"replica +connecting sent streaming outstanding running waiting", plain)
    assert len(re.findall(r"127\.0\.0\.1:\d+ +\d+ +\d+ +\d+ +\d+ +[\d–]+ +[\d–]+", plain)) >= 2
    assert "all accounted for" in plain


def read_terminal(descriptor: int) -> str:
    """All that is written to a terminal until its last writer has gone."""
    written = b""
    while True:
        try:
            written += os.read(descriptor, 65536)
        except OSError:
            return written.decode()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--users", "0"), "argument --users: '0'; accepted: a whole number, 1 or more"),
        (("--replicas", "-1"), "argument --replicas: '-1'; accepted: a whole number, 1 or more"),
        (("--connector-limit", "x"), "argument --connector-limit: 'x'; accepted: a whole number, 0 or more"),
        (("--seconds", "0"), "argument --seconds: '0'; accepted: seconds above 0"),
        (("--seconds", "inf"), "argument --seconds: 'inf'; accepted: seconds above 0"),
        (("--policy", "fastest"), "argument --policy: invalid choice: 'fastest'"),
        (("--profile", "abacus"), "argument --profile: invalid choice: 'abacus'"),
    ],
)
def test_bad_flag_is_refused(
    flags: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refusal:
        main(["demo", *flags])
    assert refusal.value.code == 2
    assert message in capsys.readouterr().err
