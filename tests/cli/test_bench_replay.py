"""`replicarouter bench replay`, run as its users run it."""

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from replicarouter.cli import main
from replicarouter.replay.campaign import PLAYERS
from replicarouter.replay.workloads import WORKLOADS

Replay = Callable[..., tuple[int, str, str]]


@pytest.fixture
def replay(capsys: pytest.CaptureFixture[str]) -> Replay:
    def replay(*words: str) -> tuple[int, str, str]:
        try:
            status = main(["bench", "replay", *words])
        except SystemExit as left:
            status = int(str(left.code))
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return replay


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """60 requests that come in threes with the same prompt of four blocks."""
    path = tmp_path / "threes.jsonl"
    rows = [
        {
            "timestamp": number * 100,
            "input_length": 2048,
            "output_length": 4,
            "hash_ids": [4 * (number // 3) + block for block in range(4)],
        }
        for number in range(60)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_help_names_workloads_policies_and_an_example(replay: Replay) -> None:
    status, out, _ = replay("--help")
    assert status == 0
    for name in (*WORKLOADS, "smg-like", "llm-d-like", "dynamo-like"):
        assert name in out
    assert "replicarouter bench replay --workload chat" in out


def test_a_trace_without_time_has_known_hits(replay: Replay, trace: Path) -> None:
    words = ("--untimed", "--replicas", "3", "--policy", "round-robin", "--policy", "smg-like")
    status, out, _ = replay(str(trace), *words)
    assert status == 0
    assert "threes.jsonl: 3 replicas x 1,200 blocks of 512 tokens, untimed" in out
    rows = {cells[0]: cells[1] for line in out.splitlines() if len(cells := line.split()) > 1}
    assert rows["round-robin"] == "0.0"  # each of three goes elsewhere
    assert rows["smg-like"] == "66.7"


def test_every_policy_runs_by_default(replay: Replay, trace: Path) -> None:
    status, out, _ = replay(str(trace), "--json", "-")
    assert status == 0
    page = json.loads(out)
    assert [run["policy"] for run in page["runs"]] == list(PLAYERS)
    assert {run["requests"] for run in page["runs"]} == {60}
    assert page["settings"]["fleet"]["kv_blocks"] == 1200
    assert page["settings"]["mode"] == "timed"


def test_loads_and_seeds_are_swept_into_a_table_json_and_a_picture(replay: Replay, tmp_path: Path) -> None:
    page, picture = tmp_path / "all.json", tmp_path / "all.svg"
    words = ["--workload", "shared-prefix", "--requests", "400", "--replicas", "2", "--load", "0.5,2"]
    words += ["--seeds", "2", "--policy", "round-robin", "--json", str(page), "--plot", str(picture)]
    status, out, _ = replay(*words, "--slo-ttft", "3", "--slo-itl", "0.03")
    assert status == 0
    assert "good: TTFT <= 3 s and mean ITL <= 30 ms" in out
    assert "load 0.5: " in out
    assert "2 seeds" in out
    runs = json.loads(page.read_text())["runs"]
    assert [(run["load"], run["seed"]) for run in runs] == [(0.5, 1), (0.5, 2), (2.0, 1), (2.0, 2)]
    assert picture.read_bytes().startswith(b"<?xml")


def test_the_routers_limit_and_queue_can_be_set(replay: Replay, trace: Path) -> None:
    words = ("--policy", "round-robin", "--replicas", "1", "--speedup", "1000", "--max-outstanding", "1")
    _, out, _ = replay(str(trace), *words, "--max-queued", "9", "--json", "-")
    (run,) = json.loads(out)["runs"]
    assert run["answered"] == 10
    assert run["refused_share"] == pytest.approx(50 / 60)


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ([], 2, "give a trace's file or --workload NAME"),
        (["TRACE", "--workload", "chat"], 2, "give a trace's file or --workload NAME"),
        (["TRACE", "--policy", "best"], 2, "best"),
        (["TRACE", "--load", "1,0"], 2, "accepted: a number above 0"),
        (["TRACE", "--replicas", "0"], 2, "accepted: a whole number, 1 or more"),
        (["nowhere.jsonl"], 1, "nowhere.jsonl: No such file"),
        (["TRACE", "--block-size", "64"], 1, "line 1: 4 hash_ids for 2048 tokens"),
        (["TRACE", "--kv-blocks", "3"], 1, "does not fit into a KV cache of 1536"),
        (["TRACE", "--plot", "x.doc"], 1, "accepted are files ending in .svg"),
        (["TRACE", "--json", "/nowhere/x.json"], 1, "/nowhere/x.json: No such file"),
        (["TRACE", "--plot", "/nowhere/x.svg"], 1, "/nowhere/x.svg: No such file"),
        (["TRACE", "--json", "/"], 1, "/: Is a directory"),
        (["TRACE", "--whole-prompts"], 2, "--whole-prompts is for traces with sessions"),
        (["--workload", "chat", "--requests", "5"], 1, "load 1: none of 5 requests is counted"),
    ],
)
def test_what_cannot_be_done_is_said(
    replay: Replay, trace: Path, words: list[str], status: int, said: str
) -> None:
    found, _, err = replay(*[str(trace) if word == "TRACE" else word for word in words])
    assert found == status
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("flag", ["--json", "--plot"])
def test_a_place_that_cannot_be_written_is_found_before_the_replay(
    replay: Replay, trace: Path, flag: str
) -> None:
    status, out, _ = replay(str(trace), flag, "/nowhere/x.svg", "--policy", "random")
    assert (status, out) == (1, "")  # nor a table


def test_looking_whether_a_file_can_be_written_leaves_it_as_it_was(
    replay: Replay, trace: Path, tmp_path: Path
) -> None:
    old, fresh = tmp_path / "old.json", tmp_path / "fresh.svg"
    old.write_text("old", encoding="utf-8")
    words = ("--json", str(old), "--plot", str(fresh), "--whole-prompts")
    assert replay(str(trace), *words)[0] == 2
    assert old.read_text(encoding="utf-8") == "old"
    assert not fresh.exists()


def test_what_is_counted_of_a_workload_is_said_and_when_it_is_little(replay: Replay) -> None:
    words = ("--workload", "chat", "--requests", "600", "--policy", "round-robin")
    _, out, _ = replay(*words)
    assert "of 600 requests counted (once settled)" in out
    assert "warning: load 1: too few requests are counted" in out.splitlines()[-1]
    _, out, err = replay(*words, "--json", "-")
    assert json.loads(out)["runs"][0]["replayed"] == 600
    assert "warning: load 1: too few requests are counted" in err


def test_a_narrow_terminal_has_a_table_that_fits() -> None:
    words = ("--workload", "chat", "--requests", "600", "--policy", "least-outstanding")
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "replicarouter", "bench", "replay", *words]
    environment = {**os.environ, "COLUMNS": "80", "TERM": "xterm"}
    with subprocess.Popen(command, stdout=follower, stderr=subprocess.DEVNULL, env=environment) as running:
        os.close(follower)
        out = b""
        with suppress(OSError):  # Linux tells so that nobody can write any more
            while data := os.read(leader, 65536):
                out += data
    os.close(leader)
    text = re.sub(r"\x1b\[[0-9;]*m", "", out.decode())
    assert running.returncode == 0
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert "--json or a wider terminal has all" in text


def test_a_trace_that_shares_nothing_is_pointed_out(replay: Replay, trace: Path, tmp_path: Path) -> None:
    other = tmp_path / "misspelt.jsonl"
    other.write_text(trace.read_text(encoding="utf-8").replace("hash_ids", "hashids"), encoding="utf-8")
    words = ("--untimed", "--policy", "round-robin")
    status, _, err = replay(str(other), *words)
    assert status == 0
    assert "misspelt.jsonl: no request has hash_ids" in err
    assert err.count("\n") == 1
    assert replay(str(trace), *words)[2] == ""
