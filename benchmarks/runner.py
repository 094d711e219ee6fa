"""Runs of measurements: repeated until the machine is quiet, and kept with all that explains them."""

import argparse
import fcntl
import json
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks import peers
from benchmarks.entrants import BEFORE, DIRECT, OURS, Entrant, parse
from benchmarks.measure import Bench, Measurement
from benchmarks.processes import REPOSITORY, machine_cpu
from benchmarks.proxies import PROXIES, Launch, Tools

_PLACE = re.compile(r"/[^\s\"]*/compare-\w+")
"""The folder of one measurement."""

_ASK_VERSIONS = (
    "import json, platform, pathlib, replicarouter; from importlib.metadata import version; "
    "print(json.dumps({'replicarouter': replicarouter.__version__, 'python': platform.python_version(), "
    "'aiohttp': version('aiohttp'), 'uvloop': version('uvloop'), "
    "'folder': str(pathlib.Path(replicarouter.__file__).parent)}))"
)


def add_programs(parser: argparse.ArgumentParser) -> None:
    """Declare what names the programs that are measured."""
    parser.add_argument("--python", default=sys.executable, help="runs replicarouter")
    parser.add_argument(
        "--before", default="", metavar="PYTHON", help="runs another version of it, as the proxy 'before'"
    )
    parser.add_argument("--replicarouter-args", default="", metavar="FLAGS", help="more flags for serve")
    parser.add_argument("--peers", type=Path, metavar="DIR", help="where `benchmarks.peers` installed them")
    parser.add_argument(
        "--program", action="append", default=[], metavar="NAME=COMMAND", help="a proxy's command (repeat)"
    )
    parser.add_argument("--nginx", default="", metavar="COMMAND", help="the same as --program nginx=…")
    parser.add_argument(
        "--vllm-router", default=os.environ.get("VLLM_ROUTER", ""), metavar="COMMAND", help="likewise"
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare what every run understands: programs, patience, and where the results go."""
    add_programs(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="for the raw measurements")
    parser.add_argument("--engines", type=int, metavar="N", help="processes that the eight replicas are in")
    parser.add_argument("--clients", type=int, metavar="N", help="processes that the users are in")
    parser.add_argument(
        "--max-foreign", type=float, default=0.25, help="cores in use by others: wait while above"
    )
    parser.add_argument("--quiet-wait", type=float, default=10.0, help="longest such wait, seconds")
    parser.add_argument(
        "--attempts", type=int, default=3, help="most tries for a window without foreign load"
    )
    parser.add_argument("--lock", type=Path, metavar="FILE", help="to lock for each measurement")


def entrants(parser: argparse.ArgumentParser, text: str) -> list[Entrant]:
    """Return the entrants of a comma-separated list; one that does not exist ends the program."""
    found = []
    for label in text.split(","):
        try:
            found.append(parse(label))
        except ValueError as error:
            parser.error(f"{label!r}: {error}")
        if found[-1].proxy not in {DIRECT, *PROXIES}:
            parser.error(f"{label!r} is not one of {', '.join([DIRECT, *PROXIES])}")
    return found


def tools(arguments: argparse.Namespace) -> Tools:
    """Return the commands, named on the command line or found."""
    named = dict(each.split("=", 1) for each in arguments.program)
    named |= {
        name: command
        for name, command in (("nginx", arguments.nginx), ("vllm-router", arguments.vllm_router))
        if command
    }
    places = {name: peers.program(name, arguments.peers) for name in (*peers.SYSTEM, *peers.PEERS)}
    return Tools(
        python=arguments.python,
        before=arguments.before,
        programs={**places, **named},
        replicarouter_args=arguments.replicarouter_args,
    )


def missing(chosen: Sequence[Entrant], found: Tools) -> list[str]:
    """Return the proxies among them whose program is not there."""
    commands = {**found.programs, BEFORE: found.before, OURS: found.python, DIRECT: sys.executable}
    names = dict.fromkeys(each.proxy for each in chosen)
    return [name for name in names if not shutil.which((commands[name] or "-").split(" ")[0])]


def quietest(attempt: Callable[[], list[Measurement]], arguments: argparse.Namespace) -> list[Measurement]:
    """Measure until a window had little foreign load, and return the one that had the least."""
    results: list[list[Measurement]] = []
    while len(results) < arguments.attempts:
        with _locked(arguments.lock):
            await_quiet(arguments.max_foreign, arguments.quiet_wait)
            results.append(attempt())
        if _foreign(results[-1])[1] <= arguments.max_foreign:
            break
    best = min(results, key=_foreign)
    for each in best:
        each.attempts = len(results)
    return best


def await_quiet(limit: float, longest: float) -> None:
    """Wait until the machine has less than `limit` cores in use, `longest` seconds at most."""
    deadline = time.monotonic() + longest
    pause = 0.5
    while True:
        before = machine_cpu()
        time.sleep(pause)
        if (machine_cpu() - before) / pause < limit or time.monotonic() > deadline:
            return


def raise_descriptor_limit() -> None:
    """Let this process and those it starts open as many files as they may."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def machine() -> dict[str, Any]:
    """Return what the machine and the tools are."""
    return {
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def versions(chosen: Sequence[Entrant], found: Tools) -> dict[str, str]:
    """Return what each proxy says of its version."""
    names = [name for name in dict.fromkeys(each.proxy for each in chosen) if name != DIRECT]
    own = {OURS: found.python, BEFORE: found.before}
    return {
        name: _own_version(own[name]) if name in own else peers.version(name, found.programs[name])
        for name in names
    }


def save(
    arguments: argparse.Namespace, facts: Mapping[str, Any], bench: Bench, measurements: Sequence[Measurement]
) -> None:
    """Write everything measured so far, and beside it a folder with how each proxy was set."""
    path: Path = arguments.json
    path.parent.mkdir(parents=True, exist_ok=True)
    head = {
        "machine": machine(),
        "arguments": {name: str(value) for name, value in vars(arguments).items() if name != "json"},
        "launches": {label: asdict(each) for label, each in bench.launches.items()},
        **facts,
    }
    lines = ",\n".join(json.dumps(asdict(each)) for each in measurements)
    text = json.dumps(head, indent=1)[:-2] + f',\n "measurements": [\n{lines}\n]}}\n'
    path.write_text(_portable(text, arguments))
    folder = path.with_name(path.stem + "-configs")
    for label, each in bench.launches.items():
        _write_launch(folder / label.replace(":", "-"), each, arguments)


def load(paths: Sequence[Path]) -> list[Measurement]:
    """Return the measurements of saved runs; repetitions of different runs are never paired."""
    found: list[Measurement] = []
    for path in paths:
        first = 1 + max((each.repetition for each in found), default=-1)
        run = json.loads(path.read_text())["measurements"]
        found += [Measurement(**{**each, "repetition": first + each["repetition"]}) for each in run]
    return found


def _write_launch(folder: Path, started: Launch, arguments: argparse.Namespace) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    variables = [f"{name}={value}" for name, value in started.environment.items()]
    command = " ".join([*variables, *started.command]) + "\n"
    for name, text in {"command": command, **started.files}.items():
        (folder / name).write_text(_portable(text, arguments))


def _portable(text: str, arguments: argparse.Namespace) -> str:
    """Return the text without the folders of this machine."""
    for folder, name in ((arguments.peers, "PEERS"), (arguments.before, "BEFORE"), (REPOSITORY, ".")):
        if folder:
            text = text.replace(str(folder), name)
    return _PLACE.sub("PLACE", text)


def _foreign(results: Sequence[Measurement]) -> tuple[bool, float]:
    return any(each.failure for each in results), fmean(each.foreign for each in results)


@contextmanager
def _locked(path: Path | None) -> Iterator[None]:
    """Hold an exclusive lock, for machines on which several measurements might meet."""
    if path is None:
        yield
        return
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _own_version(python: str) -> str:
    asked = subprocess.run([python, "-P", "-c", _ASK_VERSIONS], capture_output=True, text=True, check=False)
    if asked.returncode:
        return "unknown"
    facts = json.loads(asked.stdout)
    commit = _commit(facts.pop("folder"))
    return ", ".join(f"{name} {value}" for name, value in facts.items()) + commit


def _commit(folder: str) -> str:
    """Return the commit of a checkout, if it is one and git is there."""
    if shutil.which("git") is None:
        return ""
    git = ["git", "-C", folder]
    asked = subprocess.run(
        [*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    if asked.returncode or not Path(folder).is_relative_to(REPOSITORY):
        return ""
    changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", folder], check=False).returncode
    return f", commit {asked.stdout.strip()}" + (" and changes" if changed else "")


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
