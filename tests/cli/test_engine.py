"""`replicarouter engine` as a process of its own."""

import json
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

COMMAND = (sys.executable, "-m", "replicarouter", "engine")
DEADLINE = 20


@contextmanager
def engine(*flags: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen((*COMMAND, *flags), stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def run(*flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run((*COMMAND, *flags), capture_output=True, text=True, timeout=DEADLINE, check=False)


def start_up(process: subprocess.Popen[str], count: int) -> tuple[str, list[str]]:
    """The first line of the start-up block, and the addresses in the others."""
    assert process.stdout is not None
    title = process.stdout.readline()
    return title, [process.stdout.readline().strip() for _ in range(count)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_engines_serve_until_a_signal_and_exit_cleanly(number: signal.Signals) -> None:
    with engine("--port", "0", "--count", "2", "--model", "mine", "--speed", "0") as process:
        title, urls = start_up(process, 2)
        for url in urls:
            with urllib.request.urlopen(f"{url}/v1/models", timeout=DEADLINE) as response:
                assert json.load(response)["data"][0]["id"] == "mine"
        process.send_signal(number)
        assert process.wait(DEADLINE) == 0
    assert "model mine" in title
    assert len(set(urls)) == 2


def test_stream_in_flight_does_not_hold_up_the_exit() -> None:
    body = {"prompt": "x", "stream": True, "max_tokens": 30_000, "ignore_eos": True}
    with engine("--port", "0") as process:
        _, (url,) = start_up(process, 1)
        request = urllib.request.Request(
            f"{url}/v1/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=DEADLINE) as response:
            assert response.readline().startswith(b"data: ")
            process.send_signal(signal.SIGTERM)
            assert process.wait(DEADLINE) == 0


def test_flags_reach_the_engine() -> None:
    flags = ("--max-num-seqs", "3", "--kv-blocks", "77", "--block-size", "32")
    with engine("--port", "0", "--profile", "instant", *flags) as process:
        title, (url,) = start_up(process, 1)
        with urllib.request.urlopen(f"{url}/metrics", timeout=DEADLINE) as response:
            page = response.read().decode()
    assert "profile instant" in title
    assert "max-num-seqs 3" in title
    assert 'block_size="32"' in page
    assert 'num_gpu_blocks="77"' in page


def test_taken_port_is_said_and_fails() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run("--port", str(port))
    assert result.returncode == 1
    assert str(port) in result.stderr
    assert "in use" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--max-num-seqs", "0"), "max_num_seqs is 0; accepted: 1 or more"),
        (("--speed", "-1"), "speed is -1.0; accepted: 0 or more"),
        (("--count", "0"), "count is 0; accepted: 1 or more"),
        (("--port", "65535", "--count", "2"), "count is 2"),
        (("--port", "70000"), "port is 70000; accepted: 0 to 65535"),
        (("--profile", "no-such"), "no-such"),
        (("--port", "many"), "many"),
    ],
)
def test_bad_flag_is_named_with_what_is_accepted(flags: tuple[str, ...], named: str) -> None:
    result = run(*flags)
    assert result.returncode == 2
    assert named in result.stderr
    assert "Traceback" not in result.stderr


def test_help_tells_every_flag() -> None:
    text = run("--help").stdout
    for flag in ("host", "port", "count", "model", "profile", "max-num-seqs", "kv-blocks"):
        assert f"--{flag}" in text
    assert "--block-size" in text
    assert "--speed" in text
    assert "default 8001" in text
