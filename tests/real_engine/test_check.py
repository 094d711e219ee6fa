"""`replicarouter check` accepts real vLLM, and says of it what is true."""

import json
import subprocess
import sys

import pytest

from tests.real_engine.rig import HOST, SLOTS, EngineFleet, RouterProcess

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(240)]


def check(*words: str) -> tuple[int, dict[str, dict[str, str]]]:
    """Exit status and results by name; the tiny model finds no needle."""
    command = (sys.executable, "-m", "replicarouter", "check", *words, "--json", "--skip=needle")
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert done.stdout, done.stderr
    return done.returncode, {one["name"]: one for one in json.loads(done.stdout)["results"]}


def test_a_fleet_is_accepted_with_a_word_on_its_policy(router: RouterProcess) -> None:
    status, results = check(
        f"http://{HOST}:{router.port}",
        f"--admin=http://{HOST}:{router.admin_port}",
        "--tools",
        f"--concurrency={2 * SLOTS}",
    )
    told = {name: (one["status"], one["why"]) for name, one in results.items() if one["status"] != "pass"}
    # On a busy machine a stream may be late for want of a core.
    told.pop("concurrency", None)
    assert {name: told[name][0] for name in told} == {"second-turn": "warn"}, told
    assert "--policy prefix-hash" in results["second-turn"]["cure"]
    assert status == 0


def test_an_engine_alone_is_accepted(fleet: EngineFleet) -> None:
    status, results = check(f"http://{HOST}:{fleet.ports[0]}/v1", f"--concurrency={SLOTS}")
    statuses = {name: one["status"] for name, one in results.items()}
    assert status == 0, results
    assert (
        statuses["abort"] == statuses["streaming"] == statuses["usage"] == statuses["second-turn"] == "pass"
    )
    assert "--enable-request-id-headers" in results["request-id"]["cure"]
