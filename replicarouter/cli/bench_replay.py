"""`replicarouter bench replay`: its flags, and what it shows of a campaign of replays."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from replicarouter.cli import CommandFailed
from replicarouter.replay.campaign import PLAYERS, Campaign, Run, Source
from replicarouter.replay.campaign import run as run_campaign
from replicarouter.replay.figures import Slo
from replicarouter.replay.gate import GateRules
from replicarouter.replay.plot import PlotError, draw
from replicarouter.replay.plot import check as check_plot
from replicarouter.replay.report import document, tables
from replicarouter.replay.timed import ReplayError, TimedOptions
from replicarouter.replay.trace import MOONCAKE_BLOCK_TOKENS, TraceError, TraceOptions
from replicarouter.replay.untimed import UntimedOptions
from replicarouter.replay.workloads import WORKLOADS
from replicarouter.replay.workloads.base import WorkloadOptions
from replicarouter.settings import PolicyOptions
from replicarouter.simulator import DEFAULT_PROFILE, PROFILES

KV_TOKENS = 614_400
"""Tokens that a replica's KV cache holds unless blocks are given: 1,200 blocks of 512."""

WIDE = 260
"""Columns of the table where the output is no terminal."""

_REPLAY = """\
Replays the same requests under several policies in virtual time, against the simulated engine's own
scheduler and prefix cache, and compares hits, latency, goodput and balance. The policies are the very
ones that `serve` runs. Demand is a trace (JSON lines of Mooncake or AIPerf) or a generated workload.
"""


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the flags, and that `replay` runs them."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = _REPLAY
    parser.epilog = _epilog()
    parser.set_defaults(run_campaign=replay, parser=parser)
    for add in (_add_demand, _add_fleet, _add_policies, _add_output):
        add(parser)


def replay(arguments: argparse.Namespace) -> int:
    """Replay and show what came of it; CommandFailed when that cannot be done."""
    if (arguments.trace is None) == (arguments.workload is None):
        arguments.parser.error("give a trace's file or --workload NAME, one of them")
    campaign = _campaign(arguments)
    runs: list[Run] = []
    try:
        if arguments.plot is not None:
            check_plot(arguments.plot)
        for one in run_campaign(campaign, arguments.jobs):
            runs.append(one)
            _tell_progress(one, len(runs), campaign)
        _show(arguments, campaign, runs)
    except (TraceError, ReplayError, PlotError) as error:
        raise CommandFailed(str(error)) from None
    return 0


def _epilog() -> str:
    workloads = "\n".join(f"  {name:<16} {shape.help}" for name, shape in WORKLOADS.items())
    return f"""\
workloads:
{workloads}

policies that only the replay has, in the shape of other routers' rules:
  smg-like, llm-d-like, dynamo-like

examples:
  replicarouter bench replay --workload chat --policy round-robin --policy prefix-cache \\
      --load 0.5,1,1.5 --seeds 3 --jobs 4 --plot chat.svg
  replicarouter bench replay mooncake_conversation.jsonl --replicas 8 --kv-blocks 1200 --untimed
"""


Flag = Callable[..., argparse.Action]


def _add_demand(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("demand")
    flag: Flag = group.add_argument
    flag("trace", nargs="?", type=Path, metavar="TRACE", help="a file of JSON lines")
    flag("--workload", choices=sorted(WORKLOADS), metavar="NAME", help="a generated workload; see below")
    flag("--requests", type=_count, default=0, metavar="N", help="at most so many (default: the trace's)")
    flag(
        "--longest-prompt",
        type=_count,
        default=0,
        metavar="TOKENS",
        help="leave out longer prompts of a trace",
    )
    flag(
        "--rate",
        type=_positive,
        default=0.0,
        metavar="R",
        help="requests a second in all, at a load of 1 (default: as recorded, or the workload's own)",
    )
    flag(
        "--concurrency",
        type=_count,
        default=0,
        metavar="N",
        help="keep N conversations of a workload alive in place of a rate",
    )
    flag("--speedup", type=_positive, default=1.0, metavar="X", help="divide the times of a trace by X")
    flag(
        "--load",
        type=_loads,
        default=(1.0,),
        metavar="X,…",
        help="multiples of the usual rate or concurrency, each replayed (default 1)",
    )
    flag("--seeds", type=_count, default=1, metavar="N", help="repeat with N seeds (default 1)")
    flag(
        "--block-size",
        type=_count,
        default=0,
        metavar="TOKENS",
        help=f"tokens of a block: {MOONCAKE_BLOCK_TOKENS} in a trace by default, 64 in a workload",
    )
    flag(
        "--whole-prompts",
        action="store_true",
        help="in a trace's sessions each turn has its whole prompt, not what it adds",
    )


def _add_fleet(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("fleet")
    flag: Flag = group.add_argument
    flag("--replicas", type=_count, default=8, metavar="N", help="simulated replicas (default 8)")
    flag(
        "--kv-blocks",
        type=_count,
        default=0,
        metavar="B",
        help=f"blocks of each replica's KV cache (default: {KV_TOKENS:,} tokens' worth)",
    )
    flag(
        "--profile",
        default=DEFAULT_PROFILE,
        choices=sorted(PROFILES),
        help="whose step times the replicas keep (default %(default)s)",
    )
    flag("--max-num-seqs", type=_count, default=256, metavar="N", help="sequences in a batch (default 256)")
    flag(
        "--max-outstanding",
        type=_whole,
        default=0,
        metavar="N",
        help="the router's limit for each replica; 0: none (default)",
    )
    flag("--max-queued", type=_whole, default=10_000, metavar="N", help="most that wait (default 10000)")
    flag(
        "--queue-timeout",
        type=_not_negative,
        default=60.0,
        metavar="S",
        help="seconds that a request may wait, 0: for ever (default 60)",
    )
    flag(
        "--scrape-interval",
        type=_not_negative,
        default=1.0,
        metavar="S",
        help="seconds between readings of the engines, 0: one at the start (default 1)",
    )
    flag(
        "--untimed",
        action="store_true",
        help="requests one at a time, in order, against caches alone: hits and balance, no latency",
    )
    flag(
        "--in-flight",
        type=_whole,
        default=0,
        metavar="K",
        help="untimed: the last K requests count as outstanding (default 0: replicas always look idle)",
    )


def _add_policies(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("policies")
    flag: Flag = group.add_argument
    flag(
        "--policy",
        action="append",
        choices=sorted(PLAYERS),
        metavar="NAME",
        help=f"may be repeated (default: all): {', '.join(PLAYERS)}",
    )
    flag(
        "--load-factor",
        type=_positive,
        default=None,
        metavar="X",
        help="the router's policy_options.load_factor",
    )
    flag(
        "--prefix-index-bytes",
        type=_count,
        default=None,
        metavar="N",
        help="the router's policy_options.prefix_index_bytes",
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    slo = Slo()
    group = parser.add_argument_group("output")
    flag: Flag = group.add_argument
    flag("--slo-ttft", type=_positive, default=slo.ttft, metavar="S", help="seconds (default %(default)s)")
    flag(
        "--slo-itl",
        type=_positive,
        default=slo.itl,
        metavar="S",
        help="seconds between the tokens of an answer, on the average (default %(default)s)",
    )
    flag("--json", type=Path, metavar="FILE", help="write all figures there; - for standard output")
    flag(
        "--plot", type=Path, metavar="FILE", help="draw them by load (.svg, .png); needs replicarouter[plot]"
    )
    flag("--jobs", type=_count, default=1, metavar="N", help="processes that replay (default 1)")


def _campaign(arguments: argparse.Namespace) -> Campaign:
    block_tokens = arguments.block_size
    if not block_tokens:
        traced = arguments.trace is not None
        block_tokens = MOONCAKE_BLOCK_TOKENS if traced else WORKLOADS[arguments.workload].block_tokens
    source = Source(
        arguments.trace,
        arguments.workload or "",
        TraceOptions(
            block_tokens,
            arguments.speedup,
            arguments.rate,
            arguments.requests,
            arguments.longest_prompt,
            arguments.whole_prompts,
        ),
        WorkloadOptions(
            arguments.requests,
            arguments.replicas,
            rate=arguments.rate,
            concurrency=arguments.concurrency,
            block_tokens=block_tokens,
        ),
    )
    given = {"load_factor": arguments.load_factor, "prefix_index_bytes": arguments.prefix_index_bytes}
    return Campaign(
        source,
        _mode(arguments, arguments.kv_blocks or KV_TOKENS // block_tokens),
        arguments.policy or list(PLAYERS),
        (1.0,) if arguments.untimed else arguments.load,
        arguments.seeds,
        PolicyOptions.model_validate({key: value for key, value in given.items() if value is not None}),
        Slo(arguments.slo_ttft, arguments.slo_itl),
    )


def _mode(arguments: argparse.Namespace, kv_blocks: int) -> TimedOptions | UntimedOptions:
    if arguments.untimed:
        return UntimedOptions(arguments.replicas, kv_blocks, arguments.in_flight)
    rules = GateRules(arguments.max_outstanding, arguments.max_queued, arguments.queue_timeout)
    return TimedOptions(
        arguments.replicas,
        kv_blocks,
        arguments.profile,
        arguments.max_num_seqs,
        arguments.scrape_interval,
        rules,
    )


def _tell_progress(run: Run, done: int, campaign: Campaign) -> None:
    if sys.stderr.isatty():
        whole = len(campaign.policies) * len(campaign.loads) * campaign.seeds
        sys.stderr.write(f"\r{done}/{whole} {run.policy} load {run.load:g} seed {run.seed}\x1b[K")
        sys.stderr.write("\r\x1b[K" if done == whole else "")


def _show(arguments: argparse.Namespace, campaign: Campaign, runs: Sequence[Run]) -> None:
    timed = isinstance(campaign.mode, TimedOptions)
    facts = _facts(campaign)
    page = json.dumps(document(runs, facts), indent=1) + "\n"
    if str(arguments.json) == "-":
        sys.stdout.write(page)
    else:
        console = Console(width=None if sys.stdout.isatty() else WIDE)
        console.print(_headline(campaign), highlight=False)
        for table in tables(runs, timed=timed):
            console.print(table)
        if arguments.json is not None:
            _write(arguments.json, page)
    if arguments.plot is not None:
        draw(runs, arguments.plot, _headline(campaign))


def _facts(campaign: Campaign) -> dict[str, Any]:
    source, mode = campaign.source, campaign.mode
    traced = source.trace is not None
    options = asdict(source.trace_options if traced else source.workload_options)
    return {
        "trace" if traced else "workload": str(source.trace or source.workload),
        "demand": {key: value for key, value in options.items() if key != "load"},
        "mode": "timed" if isinstance(mode, TimedOptions) else "untimed",
        "fleet": asdict(mode),
        "policy_options": campaign.policy_options.model_dump(mode="json"),
        "slo": asdict(campaign.slo),
    }


def _headline(campaign: Campaign) -> str:
    source, mode = campaign.source, campaign.mode
    name = source.trace.name if source.trace is not None else source.workload
    size = source.trace_options.block_tokens
    text = f"{name}: {mode.replicas} replicas x {mode.kv_blocks:,} blocks of {size} tokens"
    if isinstance(mode, UntimedOptions):
        return f"{text}, untimed, {mode.in_flight} in flight"
    slo = campaign.slo
    return f"{text}, {mode.profile}; good: TTFT <= {slo.ttft:g} s and mean ITL <= {slo.itl * 1000:g} ms"


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandFailed(f"{path}: {error.strerror or error}") from None


def _loads(text: str) -> tuple[float, ...]:
    return tuple(_positive(part) for part in text.split(","))


def _positive(text: str) -> float:
    value = _number(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r}; accepted: a number above 0")
    return value


def _not_negative(text: str) -> float:
    value = _number(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text!r}; accepted: a number, 0 or more")
    return value


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return -1.0
    return value if value < float("inf") else -1.0


def _count(text: str) -> int:
    return _integer(text, least=1)


def _whole(text: str) -> int:
    return _integer(text, least=0)


def _integer(text: str, *, least: int) -> int:
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r}; accepted: a whole number, {least} or more")
    return int(text)
