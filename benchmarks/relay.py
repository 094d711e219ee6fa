"""What does a proxy cost? CPU for each request and streamed chunk, added TTFT and ITL, memory.

    python -m benchmarks.relay --scenarios short,paced20k --repetitions 5 --json FILE

Method, columns and cautions: benchmarks/README.md.
"""

import argparse
import fcntl
import json
import os
import platform
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path

from benchmarks.measure import Cores, Measurement, measure
from benchmarks.processes import machine_cpu
from benchmarks.proxies import DIRECT, INSTALL, PROXIES, Tools
from benchmarks.report import one_line, ratios, tables
from benchmarks.scenarios import SCENARIOS


def main() -> int:
    """Run everything that was asked for and return the exit status."""
    arguments = parse()
    tools = Tools(
        python=arguments.python,
        before=arguments.before,
        nginx=arguments.nginx,
        vllm_router=arguments.vllm_router,
        replicarouter_args=arguments.replicarouter_args,
    )
    if not arguments.tool_core < (os.cpu_count() or 1) or arguments.tool_core == arguments.proxy_core:
        print("Two different cores are needed: one for the proxy, one for the tools.")
        return 2
    os.sched_setaffinity(0, {arguments.tool_core})
    # So that a run that is ended from outside stops what it has started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    measurements: list[Measurement] = []
    interrupted = False
    try:
        for each in run(arguments, tools):
            measurements.append(each)
            print(one_line(each), flush=True)
            if arguments.json is not None:
                save(arguments.json, arguments, measurements)
    except KeyboardInterrupt:
        interrupted = True
    print("\n" + tables(measurements))
    return 1 if interrupted or any(each.failure for each in measurements) else 0


def parse() -> argparse.Namespace:
    """Read the command line; names that do not exist and programs not found end the program."""
    everything = [DIRECT, *PROXIES]
    usual = [name for name in everything if name != "before"]
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--proxies", default=",".join(usual), help="default: %(default)s")
    parser.add_argument("--scenarios", default=",".join(SCENARIOS), help="default: %(default)s")
    parser.add_argument("--repetitions", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--json", type=Path, help="file for the raw measurements")
    parser.add_argument("--python", default=sys.executable, help="runs replicarouter")
    parser.add_argument(
        "--before", default="", help="runs another version, as the proxy 'before'; an interpreter too"
    )
    parser.add_argument("--replicarouter-args", default="", help="more flags for serve")
    parser.add_argument("--nginx", default=_found("nginx", "/usr/sbin/nginx"))
    parser.add_argument("--vllm-router", default=os.environ.get("VLLM_ROUTER") or _found("vllm-router", ""))
    parser.add_argument("--proxy-core", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--tool-core", type=int, default=1, help="default: %(default)s")
    parser.add_argument(
        "--max-foreign", type=float, default=0.25, help="cores in use by others: wait while above"
    )
    parser.add_argument("--quiet-wait", type=float, default=10.0, help="longest such wait, seconds")
    parser.add_argument(
        "--attempts", type=int, default=3, help="most tries for a window without foreign load"
    )
    parser.add_argument("--lock", type=Path, help="file to lock for each measurement")
    arguments = parser.parse_args()
    arguments.proxies = _chosen(parser, arguments.proxies, everything)
    arguments.scenarios = _chosen(parser, arguments.scenarios, list(SCENARIOS))
    programs = {
        "nginx": arguments.nginx,
        "vllm-router": arguments.vllm_router,
        "before": arguments.before,
    }
    for name, command in programs.items():
        if name in arguments.proxies and not shutil.which(command.split(" ")[0] if command else ""):
            parser.error(f"{name} is not here. Install it: {INSTALL[name]}. Or leave it out.")
    return arguments


def run(arguments: argparse.Namespace, tools: Tools) -> Iterator[Measurement]:
    """Measure: all proxies in one scenario after one another, then the next; then all again.

    The first proxy moves on with every repetition, so that none always comes first.
    """
    cores = Cores(proxy=arguments.proxy_core, tools=arguments.tool_core)
    for repetition in range(arguments.repetitions):
        first = repetition % len(arguments.proxies)
        proxies = arguments.proxies[first:] + arguments.proxies[:first]
        for scenario in arguments.scenarios:
            for proxy in proxies:
                if proxy == DIRECT and SCENARIOS[scenario].hold:
                    continue
                result = quietest(partial(measure, proxy, scenario, tools, cores), arguments)
                result.repetition = repetition
                yield result


def quietest(attempt: Callable[[], Measurement], arguments: argparse.Namespace) -> Measurement:
    """Measure until a window had little foreign load, and return the one that had the least."""
    results: list[Measurement] = []
    while len(results) < arguments.attempts:
        with locked(arguments.lock):
            await_quiet(arguments.max_foreign, arguments.quiet_wait)
            results.append(attempt())
        if results[-1].foreign <= arguments.max_foreign:
            break
    best = min(results, key=lambda result: (result.failure != "", result.foreign))
    best.attempts = len(results)
    return best


@contextmanager
def locked(path: Path | None) -> Iterator[None]:
    """Hold an exclusive lock, for machines on which several measurements might meet."""
    if path is None:
        yield
        return
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def await_quiet(limit: float, longest: float) -> None:
    """Wait until the machine has less than `limit` cores in use, `longest` seconds at most."""
    deadline = time.monotonic() + longest
    pause = 0.5
    while True:
        before = machine_cpu()
        time.sleep(pause)
        if (machine_cpu() - before) / pause < limit or time.monotonic() > deadline:
            return


def save(path: Path, arguments: argparse.Namespace, measurements: Sequence[Measurement]) -> None:
    """Write everything measured so far."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "machine": {
            "platform": platform.platform(),
            "processor": _processor(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "aiohttp": version("aiohttp"),
            "uvloop": version("uvloop"),
        },
        "arguments": {name: str(value) for name, value in vars(arguments).items()},
        "ratios": ratios(measurements),
        "measurements": [asdict(each) for each in measurements],
    }
    path.write_text(json.dumps(content, indent=1))


def _chosen(parser: argparse.ArgumentParser, text: str, known: Sequence[str]) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in known:
            parser.error(f"{name!r} is not one of {', '.join(known)}")
    return names


def _found(name: str, otherwise: str) -> str:
    return shutil.which(name) or otherwise


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


if __name__ == "__main__":
    sys.exit(main())
