"""The flags of `replicarouter bench replay`, and which of them go together."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from replicarouter.cli.values import count, not_negative, one_or_more, positive, whole
from replicarouter.replay.campaign import PLAYERS
from replicarouter.replay.figures import Slo
from replicarouter.replay.trace import MOONCAKE_BLOCK_TOKENS
from replicarouter.replay.workers import NEWS_DELAY
from replicarouter.replay.workloads import WORKLOADS
from replicarouter.simulator import DEFAULT_PROFILE, PROFILES

KV_TOKENS = 614_400
"""Tokens that a replica's KV cache holds unless blocks are given: 1,200 blocks of 512."""

_ONLY: Mapping[str, Sequence[str]] = {
    "a trace": ("speedup", "longest_prompt", "whole_prompts"),
    "a workload": ("concurrency",),
    "a replay without --untimed": (
        *("load", "profile", "max_num_seqs", "max_outstanding", "max_queued", "queue_timeout"),
        *("scrape_interval", "slo_ttft", "slo_itl"),
    ),
    "a replay with --untimed": ("in_flight",),
}
"""Flags that mean nothing elsewhere."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Declare them all."""
    for add in (_add_demand, _add_fleet, _add_policies, _add_output):
        add(parser)


def refuse_misfits(arguments: argparse.Namespace) -> None:
    """Leave as after bad usage when flags do not go together; a flag at its default is as good as none."""
    parser: argparse.ArgumentParser = arguments.parser
    if (arguments.trace is None) == (arguments.workload is None):
        parser.error("give a trace's file or --workload NAME, one of them")
    given = vars(arguments)
    here = (
        "a workload" if arguments.trace is None else "a trace",
        "a replay with --untimed" if arguments.untimed else "a replay without --untimed",
    )
    for place, names in _ONLY.items():
        for name in names if place not in here else ():
            if given[name] != parser.get_default(name):
                parser.error(f"--{name.replace('_', '-')} is for {place} only")
    if arguments.rate and arguments.concurrency:
        parser.error("give --rate or --concurrency, one of them")


Flag = Callable[..., argparse.Action]


def _add_demand(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("demand")
    flag: Flag = group.add_argument
    flag("trace", nargs="?", type=Path, metavar="TRACE", help="a file of JSON lines")
    flag("--workload", choices=sorted(WORKLOADS), metavar="NAME", help="a generated workload; see below")
    flag(
        "--requests",
        type=count,
        default=0,
        metavar="N",
        help="at most so many of a trace (default: all), or so many of a workload (default: thousands); of a "
        "workload those count that come once it has settled and before its last conversation begins",
    )
    flag(
        "--longest-prompt",
        type=count,
        default=0,
        metavar="TOKENS",
        help="leave out longer prompts of a trace",
    )
    flag(
        "--rate",
        type=positive,
        default=0.0,
        metavar="R",
        help="requests a second in all, at a load of 1 (default: as recorded, or the workload's own)",
    )
    flag(
        "--concurrency",
        type=count,
        default=0,
        metavar="N",
        help="keep N conversations of a workload alive in place of a rate",
    )
    flag("--speedup", type=positive, default=1.0, metavar="X", help="divide the times of a trace by X")
    flag(
        "--load",
        type=_loads,
        default=(1.0,),
        metavar="X,…",
        help="multiples of the usual rate or concurrency, each replayed (default 1)",
    )
    flag("--seeds", type=count, default=1, metavar="N", help="repeat with N seeds (default 1)")
    flag(
        "--block-size",
        type=count,
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
    flag("--replicas", type=count, default=8, metavar="N", help="simulated replicas (default 8)")
    flag(
        "--kv-blocks",
        type=count,
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
    flag("--max-num-seqs", type=count, default=256, metavar="N", help="sequences in a batch (default 256)")
    flag(
        "--max-outstanding",
        type=whole,
        default=0,
        metavar="N",
        help="the router's limit for each replica; 0: none (default)",
    )
    flag("--max-queued", type=whole, default=10_000, metavar="N", help="most that wait (default 10000)")
    flag(
        "--queue-timeout",
        type=not_negative,
        default=60.0,
        metavar="S",
        help="seconds that a request may wait, 0: for ever (default 60)",
    )
    flag(
        "--scrape-interval",
        type=not_negative,
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
        type=whole,
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
        type=one_or_more,
        default=None,
        metavar="X",
        help="the router's policy_options.load_factor",
    )
    flag(
        "--prefix-index-bytes",
        type=count,
        default=None,
        metavar="N",
        help="the router's policy_options.prefix_index_bytes",
    )
    flag(
        "--workers",
        type=count,
        default=1,
        metavar="N",
        help="the router's workers, each with a policy of its own; requests are dealt at random (default 1)",
    )
    flag(
        "--news-delay",
        type=not_negative,
        default=NEWS_DELAY,
        metavar="S",
        help="seconds until workers hear what others learned; never, if it is long (default %(default)s)",
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    slo = Slo()
    group = parser.add_argument_group("output")
    flag: Flag = group.add_argument
    flag("--slo-ttft", type=positive, default=slo.ttft, metavar="S", help="seconds (default %(default)s)")
    flag(
        "--slo-itl",
        type=positive,
        default=slo.itl,
        metavar="S",
        help="seconds between the tokens of an answer, on the average (default %(default)s)",
    )
    flag("--json", type=Path, metavar="FILE", help="write all figures there; - for standard output")
    flag(
        "--plot", type=Path, metavar="FILE", help="draw them by load (.svg, .png); needs replicarouter[plot]"
    )
    flag("--jobs", type=count, default=1, metavar="N", help="processes that replay (default 1)")


def _loads(text: str) -> tuple[float, ...]:
    return tuple(positive(part) for part in text.split(","))
