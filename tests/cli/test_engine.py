"""`replicarouter engine` as a process of its own."""

import http.client
import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

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
    assert title.startswith("1 simulated engine: model ")
    assert "profile instant" in title
    assert "max-num-seqs 3" in title
    assert 'block_size="32"' in page
    assert 'num_gpu_blocks="77"' in page


def test_engine_is_as_different_as_it_is_told_to_be() -> None:
    said = (
        "--version",
        "9.9",
        "--max-model-len",
        "4096",
        "--kv-cache-dtype",
        "fp8",
        "--template",
        "Be kind.",
    )
    drafting = ("--speculative-tokens", "2", "--acceptance", "1")
    lacking = (
        "--without-metric",
        "vllm:num_requests_waiting",
        "--without-metric",
        "vllm:prompt_tokens_total",
    )
    chat: dict[str, object] = {
        "messages": [{"role": "user", "content": "The secret word is marzipan. Which is it?"}]
    }
    with engine("--port", "0", "--profile", "instant", *said, *drafting, *lacking) as process:
        _, (url,) = start_up(process, 1)
        assert ask(f"{url}/version") == {"version": "9.9"}
        assert ask(f"{url}/tokenize", chat)["max_model_len"] == 4096
        answer = ask(f"{url}/v1/chat/completions", {**chat, "max_tokens": 7})
        with urllib.request.urlopen(f"{url}/metrics", timeout=DEADLINE) as response:
            page = response.read().decode()
    assert answer["choices"][0]["message"]["content"].startswith("marzipan. ")  # type: ignore[index]
    assert 'cache_dtype="fp8"' in page
    assert "vllm:spec_decode_num_accepted_tokens_per_pos_total" in page
    assert "vllm:num_requests_waiting{" not in page
    assert "vllm:prompt_tokens_total" not in page


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
        (("--control-port", "-1"), "control_port is -1; accepted: 0 to 65535"),
        (("--load-seconds", "-1"), "load_seconds is -1.0; accepted: 0 or more"),
        (("--loading", "asleep"), "loading is 'asleep'; accepted: a list of refused, silent"),
        (("--acceptance", "2"), "acceptance is 2.0; accepted: 0 to 1"),
        (("--without-metric", "vllm:nothing"), "without_metrics is ['vllm:nothing']; accepted: families"),
        (("--sigterm", "later"), "later"),
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


def ask(url: str, said: dict[str, object] | None = None, **headers: str) -> dict[str, object]:
    """A JSON answer to GET, or to POST with `said`."""
    body = None if said is None else json.dumps(said).encode()
    headers = {"Content-Type": "application/json", **headers}
    with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=DEADLINE) as response:
        return dict(json.load(response))


def test_control_port_scripts_faults_while_the_port_refuses() -> None:
    with engine("--port", "0", "--control-port", "0", "--count", "2") as process:
        _, rows = start_up(process, 2)
        urls, controls = zip(*(row.split("  control ") for row in rows), strict=True)
        ask(f"{controls[1]}/sim/fault", {"kind": "refuse"})
        with pytest.raises(urllib.error.URLError, match="refused"):
            ask(f"{urls[1]}/v1/models")
        assert ask(f"{urls[0]}/v1/models")["object"] == "list"
        faults = ask(f"{controls[1]}/sim/fault")["faults"]
        assert isinstance(faults, list)
        assert faults[0]["kind"] == "refuse"


def test_engine_refuses_while_it_loads() -> None:
    with engine("--port", "0", "--load-seconds", "1") as process:
        _, (url,) = start_up(process, 1)
        with pytest.raises(urllib.error.URLError, match="refused"):
            ask(f"{url}/v1/models")
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end:
            with suppress(urllib.error.URLError):
                assert ask(f"{url}/v1/models")["object"] == "list"
                return
            time.sleep(0.02)
        pytest.fail("it did not serve")


@contextmanager
def endless_stream(url: str) -> Iterator[http.client.HTTPResponse]:
    body = {"prompt": "x", "stream": True, "max_tokens": 30_000, "ignore_eos": True}
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=DEADLINE) as response:
        assert response.readline().startswith(b"data: ")
        yield response


def ask_until_it_fails(url: str, said: dict[str, object]) -> None:
    while True:
        ask(url, said)


def test_sigterm_as_vllm_leaves_open_answers_silent_until_their_clients_go() -> None:
    with engine("--port", "0", "--sigterm", "vllm") as process:
        _, (url,) = start_up(process, 1)
        with endless_stream(url):
            process.send_signal(signal.SIGTERM)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.5)
            with pytest.raises(urllib.error.URLError, match="refused"):
                ask(f"{url}/v1/models")
        assert process.wait(DEADLINE) == 0


def test_sigterm_can_let_what_runs_finish() -> None:
    with engine("--port", "0", "--sigterm", "drain", "--shutdown-timeout", "2") as process:
        _, (url,) = start_up(process, 1)
        with endless_stream(url):
            process.send_signal(signal.SIGTERM)
            with pytest.raises(urllib.error.HTTPError, match="500"):
                ask_until_it_fails(f"{url}/v1/completions", {"prompt": "x", "max_tokens": 1})
            assert process.wait(DEADLINE) == 0, "not longer than its timeout"


def test_second_signal_ends_at_once() -> None:
    with engine("--port", "0", "--sigterm", "drain", "--shutdown-timeout", "1000") as process:
        _, (url,) = start_up(process, 1)
        with endless_stream(url):
            process.send_signal(signal.SIGTERM)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.3)
            process.send_signal(signal.SIGTERM)
            assert process.wait(DEADLINE) == 0


def test_journal_is_complete_when_the_engine_is_killed(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    with engine("--port", "0", "--journal", str(journal), "--profile", "instant") as process:
        _, (url,) = start_up(process, 1)
        port = url.rpartition(":")[2]
        ask(f"{url}/v1/completions", {"prompt": "x", "max_tokens": 1}, **{"X-Soak-Nonce": "n1"})
        end = time.monotonic() + DEADLINE
        while "finished" not in journal.read_text() and time.monotonic() < end:
            time.sleep(0.01)
        process.kill()
        process.wait(DEADLINE)
    events = ("received", "started", "finished")
    lines = [line.partition(" ")[2] for line in journal.read_text().splitlines()]
    assert lines == [f"{port} {event} n1" for event in events]


def test_journal_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    result = run("--port", "0", "--journal", str(tmp_path / "none" / "journal"))
    assert result.returncode == 1
    assert "cannot write" in result.stderr
