"""`replicarouter bench replay`: what it replays, and what it shows of it."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from replicarouter.cli import CommandFailed
from replicarouter.cli.replay_flags import KV_TOKENS, add_flags, refuse_misfits
from replicarouter.replay.campaign import PLAYERS, Campaign, Router, Run, Source
from replicarouter.replay.campaign import run as run_campaign
from replicarouter.replay.figures import Slo
from replicarouter.replay.gate import GateRules
from replicarouter.replay.plot import PlotError, draw
from replicarouter.replay.plot import check as check_plot
from replicarouter.replay.report import document, none_counted, show, too_few
from replicarouter.replay.timed import ReplayError, TimedOptions
from replicarouter.replay.trace import MOONCAKE_BLOCK_TOKENS, TraceError, TraceOptions, read_trace
from replicarouter.replay.untimed import UntimedOptions
from replicarouter.replay.workloads import WORKLOADS
from replicarouter.replay.workloads.base import WorkloadOptions
from replicarouter.settings import PolicyOptions

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
    add_flags(parser)


def replay(arguments: argparse.Namespace) -> int:
    """Replay and show what came of it; CommandFailed when that cannot be done."""
    refuse_misfits(arguments)
    campaign = _campaign(arguments)
    runs: list[Run] = []
    try:
        _check_output(arguments)
        _check_trace(arguments, campaign.source)
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
        Router(arguments.workers, arguments.news_delay),
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


def _check_output(arguments: argparse.Namespace) -> None:
    """Rather now than after hours of replays."""
    if arguments.plot is not None:
        check_plot(arguments.plot)
    for path in (arguments.json, arguments.plot):
        if path is not None and str(path) != "-":
            _check_writable(path)


def _check_writable(path: Path) -> None:
    """Raise CommandFailed when a file cannot be written, and leave it as it was."""
    place = path.resolve()
    try:
        fresh = not place.exists()
        # What is neither file nor folder, such as a pipe, might take being opened for an end.
        if fresh or place.is_file() or place.is_dir():
            place.open("ab").close()
        if fresh:
            place.unlink()
    except OSError as error:
        raise CommandFailed(f"{path}: {error.strerror or error}") from None


def _check_trace(arguments: argparse.Namespace, source: Source) -> None:
    if source.trace is None:
        return
    trace = read_trace(source.trace, source.trace_options)
    if arguments.whole_prompts and not trace.has_sessions:
        arguments.parser.error(
            f"--whole-prompts is for traces with sessions; {source.trace} has no session_id"
        )
    if not trace.can_share:
        sys.stderr.write(
            f"replicarouter: warning: {source.trace}: no request has hash_ids, text_input or messages, "
            "or a turn of its session before it: nothing is shared, and nothing can be hit\n"
        )


def _tell_progress(run: Run, done: int, campaign: Campaign) -> None:
    if sys.stderr.isatty():
        whole = len(campaign.policies) * len(campaign.loads) * campaign.seeds
        sys.stderr.write(f"\r{done}/{whole} {run.policy} load {run.load:g} seed {run.seed}\x1b[K")
        sys.stderr.write("\r\x1b[K" if done == whole else "")


def _show(arguments: argparse.Namespace, campaign: Campaign, runs: Sequence[Run]) -> None:
    counted = [run for run in runs if run.figures.requests]
    page = json.dumps(document(runs, _facts(campaign)), indent=1) + "\n"
    few = too_few(counted)
    if str(arguments.json) == "-":
        sys.stdout.write(page)
        sys.stderr.write(f"replicarouter: warning: {few}\n" if few else "")
    else:
        console = Console(width=None if sys.stdout.isatty() else WIDE)
        console.print(_headline(campaign), highlight=False)
        show(console, counted, timed=isinstance(campaign.mode, TimedOptions))
        if few:
            console.print(f"warning: {few}", style="yellow", highlight=False)
        if arguments.json is not None:
            _write(arguments.json, page)
    if arguments.plot is not None and counted:
        draw(counted, arguments.plot, _headline(campaign))
    if len(counted) < len(runs):
        raise CommandFailed(none_counted(runs))


def _facts(campaign: Campaign) -> dict[str, Any]:
    source, mode = campaign.source, campaign.mode
    traced = source.trace is not None
    options = asdict(source.trace_options if traced else source.workload_options)
    return {
        "trace" if traced else "workload": str(source.trace or source.workload),
        "demand": {key: value for key, value in options.items() if key != "load"},
        "mode": "timed" if isinstance(mode, TimedOptions) else "untimed",
        "fleet": asdict(mode),
        "router": asdict(campaign.router),
        "policy_options": campaign.policy_options.model_dump(mode="json"),
        "slo": asdict(campaign.slo),
    }


def _headline(campaign: Campaign) -> str:
    source, mode = campaign.source, campaign.mode
    name = source.trace.name if source.trace is not None else source.workload
    size = source.trace_options.block_tokens
    text = f"{name}: {mode.replicas} replicas x {mode.kv_blocks:,} blocks of {size} tokens"
    if campaign.router.workers > 1:
        text += f", {campaign.router.workers} workers"
    if isinstance(mode, UntimedOptions):
        return f"{text}, untimed, {mode.in_flight} in flight"
    slo = campaign.slo
    return f"{text}, {mode.profile}; good: TTFT <= {slo.ttft:g} s and mean ITL <= {slo.itl * 1000:g} ms"


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandFailed(f"{path}: {error.strerror or error}") from None
