"""Two versions, or two proxies, at the same time on one core: differences of one per cent, in a minute.

    python -m benchmarks.side_by_side --before DIR/bin/python
    python -m benchmarks.side_by_side --proxies nginx,before,replicarouter --before DIR/bin/python

On a machine that others use too, a proxy costs a third more in one minute than in the next, which hides what
a change has gained. Here all share one core, the same replicas and the same minute: what disturbs one
disturbs all. Each has its part of the users. They push one another out of the caches, so that all cost
somewhat more than alone: only ratios mean something, and `compare` remains the judge of them.
"""

import argparse
import json
import os
import signal
import statistics
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from benchmarks import runner
from benchmarks.cores import Cores
from benchmarks.measure import Bench, Stage
from benchmarks.scenarios import SCENARIOS

STARTING = 1.0
"""Seconds that clients may have between the first of them and the last."""


def main() -> int:
    """Measure, and print a row for each proxy."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--proxies", default="before,replicarouter", metavar="NAME,…", help="%(default)s")
    parser.add_argument("--scenario", default="paced20k", choices=("short", "paced20k", "paced5k"))
    parser.add_argument("--windows", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each window")
    runner.add_programs(parser)
    arguments = parser.parse_args()
    chosen = runner.entrants(parser, arguments.proxies)
    bench = Bench(runner.tools(arguments), Cores([0], [1]))
    for name in runner.missing(chosen, bench.tools):
        parser.error(f"{name} is not here (--python, --before, --peers)")
    runner.raise_descriptor_limit()
    os.sched_setaffinity(0, bench.cores.tools)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    usual = SCENARIOS[arguments.scenario]
    scenario = replace(
        usual,
        users=(usual.users[0] // len(chosen),),
        warm=usual.warm + STARTING,
        seconds=arguments.windows * arguments.seconds + STARTING,
    )
    with ExitStack() as stack:
        stages = []
        for entrant in chosen:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="compare-")))
            stages.append(Stage(entrant, scenario, bench, folder))
        replica_ports = stages[0].start_engines(stack)
        ports = [stage.start_proxy(replica_ports, stack) for stage in stages]
        for stage, port in zip(stages, ports, strict=True):
            stage.start_clients([port], stack)
        for stage in stages:
            stage.ask_clients()
        windows = [_window(stages, arguments.seconds) for _ in range(arguments.windows)]
        units = [stage.ask_clients()[0] for stage in stages]
        errors = [stage.ask_clients()[0]["errors"] for stage in stages]
    rates = [one["events" if scenario.events else "requests"] / one["seconds"] for one in units]
    costs = [[used / rate * 1e6 for used, rate in zip(window, rates, strict=True)] for window in windows]
    print(f"| proxy | CPU µs a {scenario.unit} | × {chosen[0].label} | {scenario.unit}s/s | errors |")
    print("| --- | --- | --- | --- | --- |")
    for index, entrant in enumerate(chosen):
        own = statistics.median(cost[index] for cost in costs)
        ratios = sorted(cost[index] / cost[0] for cost in costs)
        ratio = f"{statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})"
        told = json.dumps(errors[index])
        print(f"| {entrant.label} | {own:.2f} | {ratio} | {rates[index]:.0f} | {told} |")
    return 1 if any(errors) else 0


def _window(stages: list[Stage], seconds: float) -> list[float]:
    """Watch all for a while; the CPU seconds a second that each has used."""
    before, began = [_used(stage) for stage in stages], time.monotonic()
    time.sleep(seconds)
    after, elapsed = [_used(stage) for stage in stages], time.monotonic() - began
    return [(late - early) / elapsed for early, late in zip(before, after, strict=True)]


def _used(stage: Stage) -> float:
    assert stage.proxy is not None
    return stage.proxy.time_on_cores()


if __name__ == "__main__":
    raise SystemExit(main())
