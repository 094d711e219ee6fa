"""How each proxy is started in front of the replicas, with settings that are kind to it."""

import shlex
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

from benchmarks.cheap_engine import MODEL
from benchmarks.entrants import BEFORE, OURS, Entrant

TEMPLATES = Path(__file__).parent / "configs"


@dataclass(frozen=True, slots=True)
class Tools:
    """The commands on this machine that the proxies are started with.

    `programs` are those of the rivals by name, `peers` the folder that they were installed into.
    """

    python: str
    before: str = ""
    programs: Mapping[str, str] = field(default_factory=dict)
    peers: Path | None = None
    replicarouter_args: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one proxy runs: its port, the replicas behind it, a directory for its files."""

    port: int
    replica_ports: Sequence[int]
    directory: Path

    def replica_urls(self) -> list[str]:
        """Return the replicas' base URLs."""
        return [f"http://127.0.0.1:{port}" for port in self.replica_ports]


@dataclass(frozen=True, slots=True)
class Launch:
    """What is run: a command, variables of its environment, and files by their names in the place."""

    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def launch(entrant: Entrant, tools: Tools, place: Place) -> Launch:
    """Return how the entrant is started, its files written."""
    found = PROXIES[entrant.proxy](entrant, tools, place)
    for name, text in found.files.items():
        (place.directory / name).write_text(text)
    return found


def nginx(entrant: Entrant, tools: Tools, place: Place) -> Launch:
    """Least connections, a keep-alive pool, nothing buffered, no access log; workers share no socket."""
    config = _filled(
        "nginx.conf",
        place,
        [f"        server 127.0.0.1:{port} max_fails=0;" for port in place.replica_ports],
        workers=entrant.workers,
        policy=entrant.policy or "least_conn",
        reuseport=" reuseport" if entrant.workers > 1 else "",
    )
    path = place.directory / "nginx.conf"
    command = [tools.programs["nginx"], "-e", "stderr", "-p", str(place.directory), "-c", str(path)]
    return Launch(command, files={path.name: config})


def haproxy(entrant: Entrant, tools: Tools, place: Place) -> Launch:
    """Least connections, connections reused whenever it can, a thread for each worker."""
    servers = [
        f"    server replica{index} 127.0.0.1:{port} maxconn 20000"
        for index, port in enumerate(place.replica_ports)
    ]
    policy = entrant.policy or "leastconn"
    config = _filled("haproxy.cfg", place, servers, workers=entrant.workers, policy=policy)
    path = place.directory / "haproxy.cfg"
    return Launch([tools.programs["haproxy"], "-db", "-f", str(path)], files={path.name: config})


def envoy(entrant: Entrant, tools: Tools, place: Place) -> Launch:
    """Least requests, no circuit breaker in the way, a thread for each worker."""
    servers = [
        f"          - endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}}}"
        for port in place.replica_ports
    ]
    config = _filled("envoy.yaml", place, servers, policy=entrant.policy or "LEAST_REQUEST")
    path = place.directory / "envoy.yaml"
    command = [tools.programs["envoy"], "-c", str(path), "--concurrency", str(entrant.workers)]
    return Launch([*command, "-l", "error", "--disable-hot-restart"], files={path.name: config})


def vllm_router(entrant: Entrant, tools: Tools, place: Place) -> Launch:
    """Round robin, its cheapest policy, errors only in the log; a thread for each core it may use."""
    command = [*shlex.split(tools.programs["vllm-router"]), *_rust_flags(entrant, place)]
    return Launch([*command, "--queue-size", "0"])


def smg(entrant: Entrant, tools: Tools, place: Place) -> Launch:
    """As vllm-router; no tokenizer, no history."""
    command = [*shlex.split(tools.programs["smg"]), "launch", *_rust_flags(entrant, place)]
    more = ("--backend", "vllm", "--disable-tokenizer-autoload", "--history-backend", "none")
    return Launch([*command, *more])


def litellm(entrant: Entrant, tools: Tools, place: Place) -> Launch:
    """Its cheapest strategy, no retries, no spend log, no tokens counted; processes as workers."""
    servers = [
        f"  - model_name: {MODEL}\n    litellm_params: "
        f'{{model: hosted_vllm/{MODEL}, api_base: "{url}/v1", api_key: none}}'
        for url in place.replica_urls()
    ]
    config = _filled("litellm.yaml", place, servers, policy=entrant.policy or "simple-shuffle")
    path = place.directory / "litellm.yaml"
    command = [tools.programs["litellm"], "--config", str(path), "--host", "127.0.0.1"]
    command += ["--port", str(place.port), "--num_workers", str(entrant.workers), "--telemetry", "False"]
    environment = {
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
        "LITELLM_LOG": "ERROR",
        "LITELLM_MODE": "PRODUCTION",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "NO_DOCS": "True",
    }
    return Launch(command, environment, {path.name: config})


def production_stack(entrant: Entrant, tools: Tools, place: Place) -> Launch:
    """Round robin over a static list, errors only in the log; it has one process."""
    program = Path(tools.programs["production-stack"])
    command = [str(program), "-m", "vllm_router.app", "--host", "127.0.0.1", "--port", str(place.port)]
    command += ["--service-discovery", "static", "--static-backends", ",".join(place.replica_urls())]
    command += ["--static-models", ",".join([MODEL] * len(place.replica_ports))]
    command += ["--routing-logic", entrant.policy or "roundrobin", "--log-level", "error"]
    command += ["--engine-stats-interval", "10"]
    return Launch(command, {"PYTHONPATH": str(program.parent.parent / "source/src")})


def replicarouter(entrant: Entrant, tools: Tools, place: Place) -> Launch:
    """The router as it is: metrics, probes and scrapes on, the access log into a file."""
    return Launch(_router(tools.python, entrant, tools, place))


def before(entrant: Entrant, tools: Tools, place: Place) -> Launch:
    """Another version of the router, set in the same way."""
    return Launch(_router(tools.before, entrant, tools, place))


def _router(python: str, entrant: Entrant, tools: Tools, place: Place) -> list[str]:
    replicas = [word for url in place.replica_urls() for word in ("--replica", url)]
    flags = [word for name, value in entrant.flags for word in (f"--{name}", value)]
    return [
        # -P: the version that is installed there, not the one in the folder this runs in.
        *(python, "-P", "-m", "replicarouter", "serve"),
        *("--host", "127.0.0.1", "--port", str(place.port), "--admin-port", "0"),
        *("--policy", entrant.policy or "least-outstanding", "--connector-limit", "16384"),
        *("--log-level", "info", "--log-format", "json"),
        *(("--workers", str(entrant.workers)) if entrant.workers != 1 else ()),
        *replicas,
        *shlex.split(tools.replicarouter_args),
        *flags,
    ]


def _rust_flags(entrant: Entrant, place: Place) -> list[str]:
    return [
        *("--host", "127.0.0.1", "--port", str(place.port)),
        *("--worker-urls", *place.replica_urls()),
        *("--policy", entrant.policy or "round_robin", "--log-level", "error"),
        *("--prometheus-port", str(free_port())),
        *("--max-concurrent-requests", "20000", "--max-payload-size", str(64 << 20)),
        *("--worker-startup-check-interval", "1"),
    ]


def _filled(name: str, place: Place, servers: Sequence[str], **values: object) -> str:
    text = Template((TEMPLATES / name).read_text())
    servers_text = "\n".join(servers)
    return text.substitute(port=place.port, directory=place.directory, servers=servers_text, **values)


PROXIES: dict[str, Callable[[Entrant, Tools, Place], Launch]] = {
    "nginx": nginx,
    "haproxy": haproxy,
    "envoy": envoy,
    "vllm-router": vllm_router,
    "smg": smg,
    "litellm": litellm,
    "production-stack": production_stack,
    OURS: replicarouter,
    BEFORE: before,
}
