"""Conversations through the router: what each policy makes of their prefixes in the engines' caches.

    python -m benchmarks.multi_turn --conversations 256 --turns 6 --remove-one

Each policy has a fresh fleet. The exit status is 1 when a request failed.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvloop
from rich.console import Console

from benchmarks.multi_turn_account import Account, CacheCounts, account, busiest, departure, table
from benchmarks.multi_turn_users import Crowd, Shape
from benchmarks.processes import machine_cpu, process_cpu
from benchmarks.soak_fleet import Fleet, ask, until
from replicarouter.engines import DIALECTS, PARSER

POLICIES = ("round-robin", "least-outstanding", "session", "prefix-hash", "prefix-cache")
SAYS_WHO = "session"
"""The policy that has to be told which requests belong together; the others are not."""

SETTINGS: dict[str, Any] = {"log": {"level": "warning"}, "health": {"slow_start": 0.0}}
"""A fleet that has been up for a while: no replica is spared for being new."""

REMOVAL_DEADLINE = 30.0
TABLE_WIDTH = 130


async def run(policy: str, arguments: argparse.Namespace, folder: Path) -> Account:
    """All conversations under one policy."""
    fleet = Fleet(
        folder,
        replicas=arguments.replicas,
        spare=0,
        flags=("--speed", str(arguments.speed), "--kv-blocks", str(arguments.kv_blocks)),
        settings={**SETTINGS, "policy": policy},
    )
    shape = Shape(
        system_tokens=arguments.system_tokens,
        user_tokens=arguments.user_tokens,
        answer_tokens=arguments.answer_tokens,
        think=arguments.think,
        spread=arguments.spread,
        says_who=policy == SAYS_WHO,
        seed=arguments.seed,
    )
    try:
        await fleet.start()
        crowd = Crowd(fleet.port, arguments.conversations, shape)
        try:
            return await _measure(policy, fleet, crowd, arguments)
        finally:
            crowd.close()
    finally:
        await fleet.stop()


async def _measure(policy: str, fleet: Fleet, crowd: Crowd, arguments: argparse.Namespace) -> Account:
    """Let them talk, and account for it; with `remove_one` the last turn comes after that, and is accounted
    for by itself."""
    turns = arguments.turns - arguments.remove_one
    router, machine = process_cpu(fleet.router.pid), machine_cpu()
    seconds = await crowd.go_on(turns)
    router, machine = process_cpu(fleet.router.pid) - router, machine_cpu() - machine
    gaps = crowd.tally.gaps
    report = account(
        policy,
        crowd.turns,
        seconds=seconds,
        gaps=(gaps.quantile(0.5), gaps.quantile(0.9)),
        engines={replica.name: await _cache_counts(replica.port) for replica in fleet.members},
    )
    report.router_cores, report.machine_cores = router.total / seconds, machine / seconds
    if arguments.remove_one:
        gone = busiest(turn for turn in crowd.turns if turn.number == turns)
        await _remove(fleet, gone)
        await crowd.go_on(1)
        report.departure = departure(crowd.turns, gone, arguments.turns)
        report.note_failures(crowd.turns)
    return report


async def _cache_counts(port: int) -> CacheCounts:
    """What an engine has counted since its start."""
    _, page = await ask(port, "GET", "/metrics")
    reading = DIALECTS["vllm"].read(PARSER.parse(page))
    return CacheCounts(reading.prefix_queries or 0, reading.prefix_hits or 0)


async def _remove(fleet: Fleet, name: str) -> None:
    """Remove a replica as an operator does, and wait until it has left."""
    status = await fleet.admin("DELETE", f"/{name}")
    if status >= 300:
        raise RuntimeError(f"removing {name} was answered {status}")

    async def gone() -> bool:
        return all(row["name"] != name for row in (await fleet.ledger())["replicas"])

    await until(gone, f"{name} has been removed", REMOVAL_DEADLINE)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    shape = Shape()
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    flag = parser.add_argument
    flag("--policy", action="append", help=f"to measure, may be repeated (default: {', '.join(POLICIES)})")
    flag("--conversations", type=int, default=256, help="that go on at the same time (default %(default)s)")
    flag("--turns", type=int, default=6, help="questions in each (default %(default)s)")
    flag("--replicas", type=int, default=8, help="simulated engines (default %(default)s)")
    flag("--system-tokens", type=int, default=shape.system_tokens, help="that all begin with (%(default)s)")
    flag("--user-tokens", type=int, default=shape.user_tokens, help="in each question (%(default)s)")
    flag("--answer-tokens", type=int, default=shape.answer_tokens, help="in each answer (%(default)s)")
    flag("--think", type=float, default=0.0, help="mean seconds before the next question (default 0)")
    flag("--spread", type=float, default=0.0, help="seconds over which conversations begin (default 0)")
    flag("--remove-one", action="store_true", help="remove the busiest replica before the last turn")
    flag("--speed", type=float, default=1.0, help="of the engines, times their profile's (default 1)")
    flag("--kv-blocks", type=int, default=32768, help="in each engine's KV cache (default %(default)s)")
    flag("--seed", type=int, default=0, help="of words and pauses (default 0)")
    flag("--json", type=Path, help="also write all figures there")
    flag("--keep", type=Path, help="keep the logs in this folder")
    chosen = parser.parse_args(arguments)
    chosen.policy = chosen.policy or list(POLICIES)
    if chosen.turns < 1 + chosen.remove_one:
        parser.error("--turns: at least one, and two with --remove-one")
    return chosen


def main() -> int:
    """Measure one policy after the other, print the table, and tell by the exit status if nothing failed."""
    arguments = parse()
    reports: list[Account] = []
    with (
        tempfile.TemporaryDirectory() as scratch,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        for policy in arguments.policy:
            folder = (arguments.keep or Path(scratch)) / policy
            folder.mkdir(parents=True, exist_ok=True)
            reports.append(runner.run(run(policy, arguments, folder)))
            print(f"{policy}: {reports[-1].seconds:.1f} s", file=sys.stderr, flush=True)
    if arguments.json:
        settings = {name: value for name, value in vars(arguments).items() if not isinstance(value, Path)}
        document = {"arguments": settings, "policies": [one.as_json() for one in reports]}
        arguments.json.write_text(json.dumps(document, indent=2) + "\n")
    console = Console()
    # Nothing is left out where the output is a file, or narrow.
    console.width = max(console.width, TABLE_WIDTH)
    console.print(table(reports))
    return 1 if any(one.failures for one in reports) else 0


if __name__ == "__main__":
    sys.exit(main())
