"""How each proxy is started in front of the replicas, with settings that are kind to it."""

import shlex
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

INSTALL = {
    "nginx": "apt-get install nginx-light (its service need not run), or name it with --nginx",
    "vllm-router": "python -m venv DIR && DIR/bin/pip install vllm-router (an environment of its "
    "own); then put DIR/bin on PATH, or name the command with --vllm-router or VLLM_ROUTER",
    "before": "check out another version, `pip install` it into an environment of its own, and name "
    "that one's interpreter with --before",
}

_NGINX_CONFIG = """\
worker_processes 1;
daemon off;
pid {directory}/nginx.pid;
error_log stderr crit;
worker_rlimit_nofile 16384;
events {{ worker_connections 16000; multi_accept on; }}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    client_max_body_size 64m;
    client_body_buffer_size 64k;
    keepalive_requests 10000000;
    upstream replicas {{
        least_conn;
{servers}
        keepalive 2048;
        keepalive_requests 10000000;
    }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{
            proxy_pass http://replicas;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
            proxy_request_buffering off;
            proxy_read_timeout 600s;
        }}
    }}
}}
"""


@dataclass(frozen=True, slots=True)
class Tools:
    """The commands on this machine that the proxies are started with."""

    python: str
    before: str
    nginx: str
    vllm_router: str
    replicarouter_args: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where one proxy runs: its port, the replicas behind it, a directory for its files."""

    port: int
    replica_ports: Sequence[int]
    directory: Path

    def replica_urls(self) -> list[str]:
        """Return the replicas' base URLs."""
        return [f"http://127.0.0.1:{port}" for port in self.replica_ports]


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def nginx(tools: Tools, place: Place) -> list[str]:
    """One worker, least connections, a keep-alive pool, nothing buffered, no access log."""
    servers = "\n".join(f"        server 127.0.0.1:{port} max_fails=0;" for port in place.replica_ports)
    config = place.directory / "nginx.conf"
    config.write_text(_NGINX_CONFIG.format(directory=place.directory, servers=servers, port=place.port))
    return [tools.nginx, "-e", "stderr", "-p", str(place.directory), "-c", str(config)]


def vllm_router(tools: Tools, place: Place) -> list[str]:
    """Round robin, its cheapest policy, errors only in the log, its limits out of the way."""
    return [
        *shlex.split(tools.vllm_router),
        *("--host", "127.0.0.1", "--port", str(place.port)),
        *("--worker-urls", *place.replica_urls()),
        *("--policy", "round_robin", "--log-level", "error"),
        *("--prometheus-port", str(free_port())),
        *("--max-concurrent-requests", "20000", "--queue-size", "0"),
        *("--worker-startup-check-interval", "1", "--max-payload-size", str(64 << 20)),
    ]


def replicarouter(tools: Tools, place: Place) -> list[str]:
    """The router as it is: metrics, probes and scrapes on."""
    return _router(tools.python, tools, place)


def before(tools: Tools, place: Place) -> list[str]:
    """Another version of the router, set in the same way."""
    return _router(tools.before, tools, place)


def _router(python: str, tools: Tools, place: Place) -> list[str]:
    replicas = [word for url in place.replica_urls() for word in ("--replica", url)]
    return [
        # -P: the version that is installed there, not the one in the folder this runs in.
        *(python, "-P", "-m", "replicarouter", "serve"),
        *("--host", "127.0.0.1", "--port", str(place.port), "--admin-port", "0"),
        *("--policy", "least-outstanding", "--connector-limit", "16384"),
        *("--log-level", "warning"),
        *replicas,
        *shlex.split(tools.replicarouter_args),
    ]


DIRECT = "direct"
"""The name of the row without a proxy: clients talk to the replicas in turn."""

PROXIES: dict[str, Callable[[Tools, Place], list[str]]] = {
    "nginx": nginx,
    "vllm-router": vllm_router,
    "replicarouter": replicarouter,
    "before": before,
}
