"""The units, as systemd's own checker reads them, and the helper that starts an engine beside its GPU."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from replicarouter.cli import main
from replicarouter.service import DRAIN_PERIOD, EXTENSION
from replicarouter.settings import Settings, load_settings
from tests.fakes.programs import program
from tests.fakes.replica import FakeReplica
from tests.fakes.running import StartRouter
from tests.fakes.wire import eventually

FOLDER = Path(__file__).parents[2] / "deploy" / "systemd"
UNITS = ("replicarouter.service", "vllm@.service", "replicarouter.target")
INSTALLED = ("/opt/replicarouter/bin/", "/usr/local/bin/")
HELPER = FOLDER / "vllm-replica"


def directives(unit: str) -> dict[str, list[str]]:
    """What a unit says, by directive; those without a value are empty."""
    found: dict[str, list[str]] = {}
    for line in (FOLDER / unit).read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def executable(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


# The units


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The units in a folder of their own, with the programs that they start."""
    (tmp_path / "bin").mkdir()
    for name in ("replicarouter", "vllm-replica"):
        executable(tmp_path / "bin" / name, "#!/bin/sh\n")
    for unit in UNITS:
        text = (FOLDER / unit).read_text()
        for folder in INSTALLED:
            text = text.replace(folder, f"{tmp_path}/bin/")
        (tmp_path / unit).write_text(text)
    return tmp_path


def complaints(folder: Path) -> list[str]:
    """What `systemd-analyze verify` says of our units, not of others that it loads with them."""
    verify = [program("systemd-analyze", "systemd"), "verify", "--man=no"]
    names = [name.replace("@.", "@3.") for name in UNITS]
    for name in names:
        template = re.sub("@3", "@", name)
        if not (folder / name).exists():
            shutil.copy(folder / template, folder / name)
    done = subprocess.run(
        [*verify, *(str(folder / name) for name in names)], capture_output=True, text=True, check=False
    )
    ours = [line for line in done.stderr.splitlines() if str(folder) in line or any(n in line for n in names)]
    return ours or ([done.stderr] if done.returncode else [])


def test_systemd_finds_nothing_to_complain_of(installed: Path) -> None:
    assert complaints(installed) == []


@pytest.mark.parametrize(
    ("unit", "right", "wrong"),
    [
        ("replicarouter.service", "WatchdogSec=30", "WatchdogSecs=30"),
        ("replicarouter.service", "Restart=on-failure", "Restart=sometimes"),
        ("replicarouter.service", "SystemCallFilter=@system-service", "SystemCallFilter=@system-services"),
        ("replicarouter.service", "bin/replicarouter serve", "bin/router serve"),
        ("vllm@.service", "KillMode=mixed", "KillMode=mild"),
    ],
)
def test_systemd_would_complain(installed: Path, unit: str, right: str, wrong: str) -> None:
    file = installed / unit
    assert right in file.read_text()
    file.write_text(file.read_text().replace(right, wrong))
    assert complaints(installed)


def test_the_router_is_exposed_to_little() -> None:
    analyse = [program("systemd-analyze", "systemd"), "security", "--offline=yes", "--threshold=20"]
    done = subprocess.run(
        [*analyse, str(FOLDER / "replicarouter.service")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-500:]


def test_each_time_limit_leaves_room_for_what_it_bounds() -> None:
    router, engine = directives("replicarouter.service"), directives("vllm@.service")
    assert DRAIN_PERIOD < EXTENSION <= float(router["TimeoutStopSec"][0])
    (drain_limit,) = re.findall(r"REPLICA_DRAIN_SECONDS:-(\d+)", HELPER.read_text())
    assert float(drain_limit) < float(engine["TimeoutStopSec"][0])
    # Until it has probed every replica once, which fails after `health.timeout`.
    assert Settings.model_fields["health"].get_default(call_default_factory=True).timeout * 5 < float(
        router["TimeoutStartSec"][0]
    )


def test_the_units_agree_with_each_other() -> None:
    router, engine = directives("replicarouter.service"), directives("vllm@.service")
    target = directives("replicarouter.target")
    assert engine["Before"] == target["Wants"] == ["replicarouter.service"]
    assert router["PartOf"] == engine["PartOf"] == engine["WantedBy"] == ["replicarouter.target"]
    assert router["RestartPreventExitStatus"] == ["2"]
    assert router["ExecStart"] == [
        "/opt/replicarouter/bin/replicarouter serve --config /etc/replicarouter/router.yaml"
    ]


def test_the_routers_file_names_the_eight_replicas_of_the_template(
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = FOLDER / "router.yaml"
    assert main(["config", "check", str(config)]) == 0, capsys.readouterr().err
    settings = load_settings(flags={}, environ={}, config=config).settings
    (first,) = re.findall(r"REPLICA_FIRST_PORT:-(\d+)", HELPER.read_text())
    assert [replica.url for replica in settings.replicas] == [
        f"http://127.0.0.1:{int(first) + gpu}" for gpu in range(8)
    ]


def test_the_variables_of_the_engines_file_are_those_of_the_helper() -> None:
    named = set(re.findall(r"^(REPLICA_\w+)=", (FOLDER / "vllm.env").read_text(), re.MULTILINE))
    told = set(re.findall(r"^#   (REPLICA_\w+)", HELPER.read_text(), re.MULTILINE))
    used = set(re.findall(r"\b(REPLICA_\w+)", re.sub(r"^#.*", "", HELPER.read_text(), flags=re.MULTILINE)))
    assert named <= told
    assert told == used


# An engine beside its GPU

GPUS = {
    0: ("00000000:18:00.0", "0"),
    5: ("00000000:9A:00.0", "1"),
    6: ("00000009:01:00.0", "2"),
    7: ("00010000:00:00.0", "-1"),
}
"""What nvidia-smi calls them, and what the system says of their node."""

SYSTEM_TOOLS = ("env", "sed", "sh", "tr", "true")


class Machine:
    """A machine with GPUs, without any other program than those the helper may use."""

    def __init__(self, folder: Path) -> None:
        self.bin, self.sysfs = folder / "bin", folder / "sys"
        self.bin.mkdir()
        for name in SYSTEM_TOOLS:
            found = shutil.which(name)
            assert found
            (self.bin / name).symlink_to(found)
        cases = "".join(f"--id={gpu}) echo '{address}' ;;\n" for gpu, (address, _) in GPUS.items())
        self.install("nvidia-smi", f'case $1 in\n{cases}*) echo "No devices were found"; exit 6 ;;\nesac')
        self.install("numactl", 'bound="$1 $2"; shift 2; BOUND=$bound exec "$@"')
        self.install(
            "vllm",
            'echo "${BOUND:-anywhere}|$CUDA_DEVICE_ORDER|$CUDA_VISIBLE_DEVICES"; printf "%s\\n" "$@"',
        )
        for address, node in GPUS.values():
            domain, _, rest = address.lower().partition(":")
            device = self.sysfs / "bus" / "pci" / "devices" / f"{int(domain, 16):04x}:{rest}"
            device.mkdir(parents=True)
            (device / "numa_node").write_text(f"{node}\n")

    def install(self, name: str, script: str) -> None:
        executable(self.bin / name, f"#!/bin/sh\n{script}\n")

    def remove(self, name: str) -> None:
        (self.bin / name).unlink()

    def helper(self, *words: str, **environ: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [str(HELPER), *words],
            env={"PATH": str(self.bin), "SYSFS": str(self.sysfs), **environ},
            capture_output=True,
            text=True,
            check=False,
            cwd=self.bin,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize(("gpu", "node", "port"), [(0, 0, 8001), (5, 1, 8006), (6, 2, 8007)])
def test_an_engine_runs_on_the_socket_of_its_gpu(machine: Machine, gpu: int, node: int, port: int) -> None:
    done = machine.helper("run", str(gpu), REPLICA_MODEL="m1")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"--cpunodebind={node} --membind={node}|PCI_BUS_ID|{gpu}",
        *("serve", "m1", "--host", "127.0.0.1", "--port", str(port)),
    ]


def test_arguments_are_split_at_spaces_and_nowhere_else(machine: Machine) -> None:
    arguments = '--max-num-seqs 64 --speculative-config {"method":"mtp","n":3} --glob *'
    done = machine.helper("run", "0", REPLICA_MODEL="a model", REPLICA_ARGS=arguments)
    assert done.stdout.splitlines()[2] == "a model"
    assert done.stdout.splitlines()[7:] == arguments.split(" ")


UNBOUND: dict[str, tuple[int, Callable[[Machine], None], str]] = {
    "the system does not know its node": (7, lambda _: None, "NUMA node is not known"),
    "there is no such GPU": (3, lambda _: None, "NUMA node is not known"),
    "there is no nvidia-smi": (0, lambda one: one.remove("nvidia-smi"), "NUMA node is not known"),
    "there is no numactl": (0, lambda one: one.remove("numactl"), "cannot bind to its NUMA node 0"),
    "the node is not ours": (
        0,
        lambda one: one.install("numactl", "exit 1"),
        "cannot bind to its NUMA node 0",
    ),
}


@pytest.mark.parametrize("why", UNBOUND)
def test_an_engine_whose_socket_is_unknown_runs_anywhere_and_says_why(machine: Machine, why: str) -> None:
    gpu, change, told = UNBOUND[why]
    change(machine)
    done = machine.helper("run", str(gpu), REPLICA_MODEL="m1")
    assert done.returncode == 0
    assert done.stdout.startswith(f"anywhere|PCI_BUS_ID|{gpu}\nserve\n")
    assert told in done.stderr


def test_what_would_be_started_is_shown(machine: Machine) -> None:
    done = machine.helper("show", "5", REPLICA_MODEL="m1", REPLICA_FIRST_PORT="9000", REPLICA_HOST="10.0.0.5")
    assert done.stdout == (
        "env CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=5 numactl --cpunodebind=1 --membind=1 "
        "vllm serve m1 --host 10.0.0.5 --port 9005\n"
    )


@pytest.mark.parametrize(
    ("words", "environ", "told"),
    [
        (("run", "0"), {}, "REPLICA_MODEL is not set"),
        (("run",), {"REPLICA_MODEL": "m1"}, "usage"),
        (("run", "first"), {"REPLICA_MODEL": "m1"}, "usage"),
        (("run", "08"), {"REPLICA_MODEL": "m1"}, "usage"),
        (("start", "0"), {"REPLICA_MODEL": "m1"}, "usage"),
    ],
)
def test_a_wrong_call_is_explained(
    machine: Machine, words: tuple[str, ...], environ: Mapping[str, str], told: str
) -> None:
    done = machine.helper(*words, **environ)
    assert done.returncode == 2
    assert told in done.stderr


async def test_an_engine_is_drained_before_it_stops_and_undrained_when_it_starts(
    start_router: StartRouter, machine: Machine
) -> None:
    machine.install("replicarouter", f'exec {sys.executable} -m replicarouter "$@"')
    fake = FakeReplica()
    router = await start_router(fake)
    environ = {
        "REPLICA_FIRST_PORT": fake.name.rpartition(":")[2],
        "REPLICA_ROUTER": f"http://127.0.0.1:{router.admin_port}",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }

    async def state(wanted: str) -> None:
        async def reached() -> bool:
            return str((await router.ledger()).replica(fake)["state"]) == wanted

        await eventually(reached, f"it is {wanted}")

    done = await asyncio.to_thread(machine.helper, "drain", "0", **environ)
    assert done.returncode == 0, done.stderr
    await state("draining")
    done = await asyncio.to_thread(machine.helper, "undrain", "0", **environ)
    assert done.returncode == 0, done.stderr
    await state("ready")


def test_every_file_that_a_unit_needs_has_an_example() -> None:
    needed = [file for unit in UNITS for file in directives(unit).get("EnvironmentFile", [])]
    assert len(needed) == 3
    missing = [
        file for file in needed if not file.startswith("-") and not (FOLDER / Path(file).name).is_file()
    ]
    assert missing == []
