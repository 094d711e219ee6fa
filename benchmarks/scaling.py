"""How many chunks a second 1, 2 and 4 workers carry, and at what CPU time each.

    python -m benchmarks.scaling --workers 1,2,4 --json benchmarks/results/scaling.json

Method, columns and cautions: benchmarks/README.md.
"""

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks import peers, runner
from benchmarks.cores import Cores, chosen, parse
from benchmarks.entrants import DIRECT, OURS, Entrant
from benchmarks.measure import Bench, Measurement, measure
from benchmarks.pairs import mid, spread
from benchmarks.report import by_proxy, errors, markdown, one_line, percentiles
from benchmarks.scenarios import Scenario

PER_WORKER = (128, 256, 512, 640, 768, 896, 1024, 1280)
"""Streams for each worker, one step after the other: 11,000 to 107,000 chunks a second."""

USUAL_LOAD = 256
"""Streams for each worker at which CPU time and latency are compared: 21,000 chunks a second."""

LOAD = Scenario(users=PER_WORKER, events=128, interval=0.012, spread=0.6, warm=0.5, seconds=1.5)
NAME = "scaling"
WHOLE = 0.9
"""Reads for each event, of the clients: below it events came in lumps, and the proxy was behind."""

GOALS = {2: 1.8, 4: 3.4}
"""What so many workers must carry of one's chunks per second, at least."""

CPU_GOAL = 1.2
"""What a chunk may cost with several workers of what it costs with one."""


@dataclass(frozen=True, slots=True)
class Ladder:
    """What one entrant did in one repetition, step by step."""

    proxy: str
    workers: int
    repetition: int
    steps: Sequence[Measurement]

    @property
    def sustained(self) -> float:
        """Return the highest rate at which every event came on time and by itself, chunks a second."""
        kept_up = [one for one in self.steps if not one.behind and one.reads >= WHOLE * one.units]
        return max((one.units / one.seconds for one in kept_up), default=0.0)

    @property
    def carried(self) -> float:
        """Return the highest rate of relays a second: what clients read in lumps counts once a lump."""
        return max(self.sustained, *(min(one.reads, one.units) / one.seconds for one in self.steps))

    @property
    def usual(self) -> Measurement:
        """Return the step at the usual load."""
        return next(one for one in self.steps if one.users == USUAL_LOAD * self.workers)


def main() -> int:
    """Run everything that was asked for; the exit status is 1 when the router's workers scale too little."""
    parser = _parser()
    arguments = parser.parse_args()
    bench = _bench(parser, arguments)
    proxies = runner.entrants(parser, arguments.proxies)
    for name in runner.missing(proxies, bench.tools):
        print(f"{name} is not here and left out. To install it: {peers.how_to_install(name)}")
        proxies = [each for each in proxies if each.proxy != name]
    facts = {
        "cores": {"proxy": list(bench.cores.proxy), "tools": list(bench.cores.tools)},
        "versions": runner.versions(proxies, bench.tools),
    }
    runner.raise_descriptor_limit()
    os.sched_setaffinity(0, bench.cores.tools)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    measurements: list[Measurement] = []
    interrupted = False
    try:
        for each in run(arguments, proxies, bench):
            measurements += each
            print("\n".join(map(one_line, each)), flush=True)
            if arguments.json is not None:
                scaled = {label: figures(found) for label, found in ladders(measurements).items()}
                runner.save(arguments, {**facts, "scaling": scaled}, bench, measurements)
    except KeyboardInterrupt:
        interrupted = True
    text = tables(measurements)
    print("\n" + text)
    if arguments.markdown is not None:
        arguments.markdown.write_text(text + "\n")
    return 1 if interrupted or _falls_short(measurements) else 0


def run(
    arguments: argparse.Namespace, proxies: Sequence[Entrant], bench: Bench
) -> Iterator[list[Measurement]]:
    """Measure all proxies with every number of workers, then again; the tools by themselves once."""
    for repetition in range(arguments.repetitions):
        for workers in arguments.workers:
            for proxy in proxies:
                if proxy.proxy == DIRECT and (repetition or workers != max(arguments.workers)):
                    continue
                steps = tuple(streams * workers for streams in PER_WORKER)
                load = replace(LOAD, users=steps, seconds=arguments.seconds)
                entrant = replace(proxy, workers=workers)
                results = runner.quietest(partial(measure, entrant, NAME, load, bench), arguments)
                for each in results:
                    each.repetition = repetition
                yield results


def ladders(measurements: Sequence[Measurement]) -> dict[str, list[Ladder]]:
    """Return the ladders of each entrant; those in which a step failed are left out."""
    found: dict[str, list[Ladder]] = {}
    groups: dict[tuple[str, int], list[Measurement]] = {}
    for each in measurements:
        groups.setdefault((each.proxy, each.repetition), []).append(each)
    for (label, repetition), steps in groups.items():
        if not any(each.failure for each in steps):
            ladder = Ladder(label.partition(":")[0], steps[0].workers, repetition, steps)
            found.setdefault(label, []).append(ladder)
    return found


def figures(found: Sequence[Ladder]) -> Mapping[str, list[float]]:
    """Return the rates and costs of an entrant, one a repetition."""
    return {
        "carried": [round(each.carried) for each in found],
        "sustained": [round(each.sustained) for each in found],
        "cpu_us": [round(each.usual.cost, 2) for each in found],
    }


def relative(found: Sequence[Ladder], every: Mapping[str, Sequence[Ladder]]) -> dict[str, list[float]]:
    """Return the same as shares of what one worker of the proxy did in the same repetition."""
    alone = {
        each.repetition: each
        for ladder in every.values()
        for each in ladder
        if each.proxy == found[0].proxy and each.workers == 1
    }
    pairs = [(each, alone[each.repetition]) for each in found if each.repetition in alone]
    return {
        "carried": [one.carried / base.carried for one, base in pairs],
        "sustained": [one.sustained / base.sustained for one, base in pairs if base.sustained],
        "cpu_us": [one.usual.cost / base.usual.cost for one, base in pairs if base.usual.cost],
    }


def tables(measurements: Sequence[Measurement]) -> str:
    """Return the result, and every step of it, as Markdown."""
    every = ladders(measurements)
    head = ["proxy", "n", "chunks/s", "× one worker", "sustained chunks/s", "× one worker"]
    head += ["CPU µs a chunk", "× one worker", "TTFT", "ITL", "errors"]
    rows = []
    for label, found in every.items():
        is_direct = found[0].proxy == DIRECT
        own, against = figures(found), relative(found, every)
        usual = [each.usual for each in found]
        row = [label, str(len(found))]
        for name, digits in (("carried", 0), ("sustained", 0), ("cpu_us", 1)):
            row.append("-" if is_direct and name == "cpu_us" else spread(own[name], digits))
            row.append(spread(against[name], 2))
        row += [percentiles(usual, kind) for kind in ("ttft", "itl")]
        row.append(str(sum(errors(each.steps) for each in found)))
        rows.append(row)
    return "### Workers\n\n" + markdown(head, rows) + "\n\n### Every step\n\n" + _steps(measurements)


def _steps(measurements: Sequence[Measurement]) -> str:
    head = ["proxy", "streams", "offered/s", "chunks/s", "reads a chunk", "CPU µs a chunk", "cores"]
    head += ["TTFT", "ITL", "delay", "tools' cores", "foreign"]
    rows = []
    for proxy, found in by_proxy(measurements):
        for users in sorted({each.users for each in found}):
            at = [each for each in found if each.users == users]
            row = [proxy, str(users), f"{at[0].offered:.0f}"]
            row.append(spread([one.units / one.seconds for one in at], 0))
            row.append(f"{mid(at, lambda one: one.reads / max(1, one.units)):.2f}")
            row.append(spread([one.cost for one in at], 1))
            row.append(f"{mid(at, lambda one: (one.user + one.system) / one.seconds):.2f}")
            row += [percentiles(at, kind) for kind in ("ttft", "itl", "delay")]
            row.append(f"{mid(at, lambda one: (one.engine_cpu + one.client_cpu) / one.seconds):.1f}")
            rows.append([*row, f"{mid(at, lambda one: one.foreign):.1f}"])
    return markdown(head, rows)


def _falls_short(measurements: Sequence[Measurement]) -> bool:
    """Say how the router scales, and return whether that is less than it must be."""
    every = ladders(measurements)
    short = any(each.failure for each in measurements)
    for found in every.values():
        if found[0].proxy != OURS or found[0].workers == 1:
            continue
        against = relative(found, every)
        if not against["carried"]:
            continue
        carried, cost = median(against["carried"]), median(against["cpu_us"])
        goal = GOALS.get(found[0].workers, 0.0)
        print(
            f"{found[0].workers} workers carry {carried:.2f} × one worker's chunks per second "
            f"(at least {goal}); a chunk costs {cost:.2f} × (at most {CPU_GOAL})."
        )
        short = short or carried < goal or cost > CPU_GOAL
    return short


def _bench(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> Bench:
    workers = max(arguments.workers)
    cores = chosen(workers)
    try:
        cores = Cores(
            parse(arguments.proxy_cores) if arguments.proxy_cores else cores.proxy,
            parse(arguments.tool_cores) if arguments.tool_cores else cores.tools,
        )
    except ValueError as error:
        parser.error(f"cores are a list such as 0-3,8: {error}")
    if len(cores.proxy) < workers:
        parser.error(f"{workers} workers need {workers} cores: --proxy-cores")
    if cores.overlap:
        print("Proxies and tools share a core: only what is shown of CPU time means something.")
    return Bench(
        tools=runner.tools(arguments),
        cores=cores,
        engines=arguments.engines or min(8, 2 * workers, len(cores.tools)),
        clients=arguments.clients or min(6, 2 * workers, len(cores.tools)),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--workers", type=_counts, default=[1, 2, 4], metavar="N,…", help="default: 1,2,4")
    parser.add_argument(
        "--proxies", default=f"{OURS},nginx,{DIRECT}", metavar="NAME,…", help="default: %(default)s"
    )
    parser.add_argument("--repetitions", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=LOAD.seconds, help="of a step's window")
    parser.add_argument("--proxy-cores", default="", metavar="LIST", help="default: one for each worker")
    parser.add_argument("--tool-cores", default="", metavar="LIST", help="default: the others")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="for the tables")
    runner.add_options(parser)
    return parser


def _counts(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
