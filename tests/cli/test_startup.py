"""What `serve` says when it starts."""

import re
import subprocess
import sys
from typing import Any

import pytest

from replicarouter import __version__
from replicarouter.cli.startup import Capacity, fleet_capacity, start_up_block
from replicarouter.fleet.ledger import Ledger
from replicarouter.fleet.lifecycle import Event
from replicarouter.fleet.registry import Fleet
from replicarouter.settings import Settings

URLS = ["http://127.0.0.1:8001", "http://127.0.0.1:8002"]
PLENTY = 100_000


def settings(**values: Any) -> Settings:
    return Settings.model_validate({"replicas": URLS, **values})


def block(given: Settings, *, ready: bool = True, descriptors: int = PLENTY, admin_port: int = 8081) -> str:
    fleet = Fleet(given.replicas, Ledger())
    for replica in fleet:
        if ready:
            fleet.list_models(replica, [{"id": "m1"}, {"id": "m2"}])
        fleet.tell(replica, Event.PASSED if ready else Event.FAILED, "refuses connections")
    return start_up_block(
        given,
        fleet.replicas,
        port=8080,
        admin_port=admin_port,
        descriptors=descriptors,
        reload="on SIGHUP: router.yaml",
    )


def warnings(text: str) -> list[str]:
    return [line.strip().removeprefix("warning: ") for line in text.splitlines() if "warning: " in line]


CONNECTOR = (
    "  connector    limit none; the fleet can run 512 requests"
    " (256 assumed for 2 replicas without max_num_seqs)"
)


def test_the_block_says_where_who_and_how_many() -> None:
    assert block(settings()).splitlines() == [
        f"replicarouter {__version__}",
        "  clients      http://127.0.0.1:8080",
        "  operators    http://127.0.0.1:8081",
        "  policy       least-outstanding",
        CONNECTOR,
        "  descriptors  100000; a request takes two",
        "  settings     read again on SIGHUP: router.yaml",
        "  replicas     2 of 2 ready",
        "    127.0.0.1:8001  ready  m1, m2",
        "    127.0.0.1:8002  ready  m1, m2",
    ]


def test_the_policies_of_pools_and_the_shadow_are_told() -> None:
    several = settings(
        policy="random",
        pools={"m1": {"policy": "session"}, "m2": {"policy": "prefix-cache"}},
        policy_options={"shadow": "prefix-hash"},
    )
    assert "  policy       random; m1: session; m2: prefix-cache; shadow: prefix-hash\n" in block(several)


def test_the_block_is_whole_lines() -> None:
    assert block(settings()).endswith("\n")


def test_a_closed_door_is_off() -> None:
    assert "  operators    off\n" in block(settings(), admin_port=0)


def test_an_address_of_version_6_can_be_clicked() -> None:
    assert "http://[::1]:8080\n" in block(settings(host="::1"))


def test_what_is_known_of_the_fleet_is_not_assumed() -> None:
    known = settings(replicas=[{"url": URLS[0], "max_num_seqs": 64}, URLS[1]])
    assert fleet_capacity(known) == Capacity(requests=320, assumed=1)
    assert "can run 320 requests (256 assumed for 1 replica " in block(known)

    all_known = settings(replicas=[{"url": URLS[0], "max_num_seqs": 64}])
    assert "can run 64 requests\n" in block(all_known)


def test_a_replica_that_is_not_ready_says_why() -> None:
    text = block(settings(), ready=False)
    assert "  replicas     0 of 2 ready\n" in text
    assert "    127.0.0.1:8001  loading (refuses connections)  models unknown\n" in text
    assert warnings(text)[0].startswith("replica 127.0.0.1:8001 is not ready: refuses connections")
    assert len(warnings(text)) == 2


@pytest.mark.parametrize("odd", ["\n  warning: forged", "\x1b[2J", "\r", "\u202e", "\x9b", "\udcff"])
def test_what_engines_write_forges_no_line(odd: str) -> None:
    given = settings(pools={f"pool{odd}": {"policy": "random"}})
    fleet = Fleet(given.replicas, Ledger())
    fleet.list_models(fleet.replicas[0], [{"id": f"model{odd}"}])
    fleet.tell(fleet.replicas[0], Event.PASSED, "")
    fleet.tell(fleet.replicas[1], Event.FAILED, f"says{odd}")
    text = start_up_block(
        given, fleet.replicas, port=8080, admin_port=8081, descriptors=PLENTY, reload="on SIGHUP"
    )
    assert all(line.isprintable() for line in text.split("\n"))
    assert "model\\" in text
    assert "says\\" in text
    assert [line[:11] for line in text.split("\n")].count("  warning: ") == 1
    text.encode()


def test_a_good_set_up_has_no_warnings() -> None:
    assert warnings(block(settings())) == []
    assert warnings(block(settings(connector={"limit": 512, "limit_per_replica": 256}))) == []


WARNED: dict[str, tuple[dict[str, Any], str]] = {
    "a connector limit below the fleet": (
        {"connector": {"limit": 511}},
        r"connector\.limit 511 is below the 512 requests .* --connector-limit 0 or at least 512",
    ),
    "a limit per replica below what one can run": (
        {"connector": {"limit_per_replica": 255}},
        r"connector\.limit_per_replica 255 is below the 256 requests that replica 127\.0\.0\.1:8001 can run",
    ),
    "idle connections that outlive the engine's": (
        {"connector": {"keepalive": 5}},
        r"connector\.keepalive 5 is not below the 5 s .* set it to 3",
    ),
    "a base path that doubles": (
        {"replicas": [f"{URLS[0]}/v1"]},
        r"replica 127\.0\.0\.1:8001: its URL ends in /v1",
    ),
}


@pytest.mark.parametrize("name", WARNED)
def test_a_mismatch_has_its_line(name: str) -> None:
    values, expected = WARNED[name]
    (warning,) = warnings(block(settings(**values)))
    assert re.match(expected, warning)


@pytest.mark.parametrize(("descriptors", "warned"), [(2 * 512 + 64, False), (2 * 512 + 63, True)])
def test_too_few_descriptors_have_their_line(descriptors: int, warned: bool) -> None:
    found = warnings(block(settings(), descriptors=descriptors))
    assert len(found) == int(warned)
    assert not warned or found[0].startswith("1087 file descriptors are fewer than the 1088")


def test_the_descriptor_limit_is_raised_to_the_hard_one() -> None:
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 200))\n"
        "from replicarouter.cli.startup import raise_descriptor_limit\n"
        "print(raise_descriptor_limit(), *resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == "200 200 200\n"


FREED = """
import sys
from pathlib import Path
from replicarouter.cli.startup import return_large_blocks

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

if sys.argv[1] == "returned":
    return_large_blocks()
before = resident()
bytearray(b"x") * 20_000_000
blocks = [bytearray(b"x") * 10_000_000 for _ in range(10)]
above = bytearray(b"x") * 300_000
del blocks
print(resident() - before)
"""


def kept(how: str) -> int:
    """Bytes that a process still has after it has freed 100 MB."""
    return int(subprocess.check_output([sys.executable, "-c", FREED, how], text=True))


def test_freed_large_blocks_go_back_to_the_system() -> None:
    assert kept("returned") < 10_000_000 < kept("as usual")
