"""The router beside nginx, HAProxy, Envoy, vllm-router, smg, LiteLLM and the production-stack router.

    python -m benchmarks.peers install DIR
    python -m benchmarks.compare --peers DIR --json benchmarks/results/NAME.json --plot NAME.svg,NAME.png

Method, columns and cautions: benchmarks/README.md.
"""

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks import peers, runner
from benchmarks.cores import Cores, parse
from benchmarks.entrants import DIRECT, OURS, Entrant
from benchmarks.measure import Bench, Measurement, measure
from benchmarks.pairs import differences, ratios
from benchmarks.proxies import PROXIES
from benchmarks.report import one_line, summary, tables
from benchmarks.scenarios import SCENARIOS, Scenario

USUAL = [
    DIRECT,
    *(name for name in PROXIES if name not in {OURS, "before"}),
    *(OURS, f"{OURS}:round-robin", f"{OURS}:prefix-hash", f"{OURS}:prefix-cache"),
]
SCENARIOS_USUAL = "short,paced20k,paced5k,long1m,idle,stalled,long256k*2,saturate*2,users*2"
POLICIES_MATTER = {"short", "long256k", "long1m", "idle"}
"""Elsewhere further policies of one proxy would only repeat its first row."""


def main(usual: Sequence[str] = USUAL) -> int:
    """Run everything that was asked for and return the exit status."""
    parser = _parser(usual)
    arguments = parser.parse_args()
    chosen = runner.entrants(parser, arguments.proxies)
    bench = _bench(parser, arguments, chosen)
    absent = runner.missing(chosen, bench.tools)
    for name in absent:
        print(f"{name} is not here and left out. To install it: {peers.how_to_install(name)}")
    chosen = [each for each in chosen if each.proxy not in absent]
    facts = {"versions": runner.versions(chosen, bench.tools)}
    runner.raise_descriptor_limit()
    os.sched_setaffinity(0, bench.cores.tools)
    # So that a run that is ended from outside stops what it has started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    measurements: list[Measurement] = []
    interrupted = False
    try:
        for each in run(arguments, chosen, bench):
            measurements += each
            print("\n".join(map(one_line, each)), flush=True)
            if arguments.json is not None:
                found = {"ratios": ratios(measurements), "differences": differences(measurements)}
                runner.save(arguments, {**facts, **found}, bench, measurements)
    except KeyboardInterrupt:
        interrupted = True
    text = summary(measurements) + "\n\n" + tables(measurements)
    print("\n" + text)
    if arguments.markdown is not None:
        arguments.markdown.write_text(text + "\n")
    if arguments.plot:
        from benchmarks.plot import draw  # noqa: PLC0415  # matplotlib is an extra

        for path in arguments.plot.split(","):
            draw(measurements, Path(path))
    return 1 if interrupted or any(each.failure for each in measurements) else 0


def run(
    arguments: argparse.Namespace, chosen: Sequence[Entrant], bench: Bench
) -> Iterator[list[Measurement]]:
    """Measure: all proxies in one scenario after one another, then the next; then all again.

    The first proxy moves on with every repetition, so that none always comes first.
    """
    seldom = arguments.seldom.split(",")
    for repetition in range(arguments.repetitions):
        first = repetition % len(chosen)
        for name, repetitions in arguments.scenarios.items():
            if repetition >= (repetitions or arguments.repetitions):
                continue
            scenario = _shortened(SCENARIOS[name], arguments.seconds)
            for entrant in [*chosen[first:], *chosen[:first]]:
                if entrant.proxy in seldom and repetition >= arguments.seldom_repetitions:
                    continue
                if _says_nothing(entrant, name, chosen):
                    continue
                results = runner.quietest(partial(measure, entrant, name, scenario, bench), arguments)
                for each in results:
                    each.repetition = repetition
                yield results


def _says_nothing(entrant: Entrant, scenario: str, chosen: Sequence[Entrant]) -> bool:
    if entrant.proxy == DIRECT:
        return SCENARIOS[scenario].hold
    plain = replace(entrant, policy="")
    return entrant.policy != "" and plain in chosen and scenario not in POLICIES_MATTER


def _shortened(scenario: Scenario, seconds: float | None) -> Scenario:
    if seconds is None or scenario.hold:
        return scenario
    return replace(scenario, seconds=min(seconds, scenario.seconds))


def _bench(
    parser: argparse.ArgumentParser, arguments: argparse.Namespace, chosen: Sequence[Entrant]
) -> Bench:
    try:
        cores = Cores(parse(arguments.proxy_cores), parse(arguments.tool_cores))
    except ValueError as error:
        parser.error(f"cores are a list such as 0-3,8: {error}")
    needed = max(each.workers for each in chosen)
    if len(cores.proxy) < needed:
        parser.error(f"{needed} workers need {needed} cores: --proxy-cores")
    if not {*cores.proxy, *cores.tools} <= os.sched_getaffinity(0):
        parser.error("there are no such cores. Two are needed: one for the proxy, one for the tools")
    if cores.overlap:
        print("Proxies and tools share a core: rates and latencies say nothing, CPU time says less.")
    spare = len(cores.tools) > 4
    return Bench(
        tools=runner.tools(arguments),
        cores=cores,
        engines=arguments.engines or (4 if spare else 1),
        clients=arguments.clients or (3 if spare else 1),
    )


def _parser(usual: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "--proxies",
        default=",".join(usual),
        metavar="NAME[:OPTION[+OPTION]],…",
        help="an option is workers=N, a policy, or FLAG=VALUE of `serve`; default: %(default)s",
    )
    parser.add_argument(
        "--scenarios",
        type=_scenarios,
        default=SCENARIOS_USUAL,
        metavar="NAME[*REPETITIONS],…",
        help="default: %(default)s",
    )
    parser.add_argument("--repetitions", type=int, default=5, help="default: %(default)s")
    parser.add_argument(
        "--seldom", default="litellm,production-stack", metavar="NAME,…", help="default: %(default)s"
    )
    parser.add_argument(
        "--seldom-repetitions", type=int, default=2, metavar="N", help="of those; default: %(default)s"
    )
    parser.add_argument("--seconds", type=float, help="longest window")
    parser.add_argument("--proxy-cores", default="0", metavar="LIST", help="default: %(default)s")
    parser.add_argument("--tool-cores", default="1", metavar="LIST", help="default: %(default)s")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="for the tables")
    parser.add_argument("--plot", default="", metavar="FILE,…", help="pictures: .svg, .png")
    runner.add_options(parser)
    return parser


def _scenarios(text: str) -> dict[str, int | None]:
    """Return the scenarios with their own numbers of repetitions, if they have such."""
    found: dict[str, int | None] = {}
    for part in text.split(","):
        name, _, repetitions = part.partition("*")
        if name not in SCENARIOS:
            raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(SCENARIOS)}")
        found[name] = int(repetitions) if repetitions else None
    return found


if __name__ == "__main__":
    sys.exit(main())
