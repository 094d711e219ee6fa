"""A soak: many users through one router, as a process, while its replicas are killed, hung and exchanged.

    python -m benchmarks.soak --minutes 10 --streams 200 --replicas 8

Everything that must be zero is counted; the exit status is 1 when something is not. What each figure
means is in benchmarks/README.md.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.soak_account import Report, Sample, account
from benchmarks.soak_chaos import Chaos
from benchmarks.soak_fleet import Fleet, unsettled, until
from benchmarks.soak_users import Habits, Users

SETTINGS: dict[str, Any] = {
    "health": {"interval": 0.5, "timeout": 1.0, "stall_after": 6.0, "stall_end": 12.0, "slow_start": 3.0},
    "scrape": {"interval": 1.0},
    "timeouts": {"connect": 2.0, "response_head": 15.0, "idle": 15.0},
    "eject": {"base_seconds": 1.0, "max_seconds": 8.0},
    "log": {"level": "warning"},
}
"""Shorter than the defaults, so that minutes show what would take hours."""

ENGINE_FLAGS = ("--speed", "0.2", "--max-num-seqs", "64", "--sigterm", "drain", "--shutdown-timeout", "4")
"""About ten tokens a second for each of 25 streams."""

WARM_UP_SHARE = 0.3
SETTLE_DEADLINE = 60.0
DESCRIPTOR_DEADLINE = 20.0


async def run(arguments: argparse.Namespace, folder: Path) -> Report:
    """One soak with everything that belongs to it."""
    fleet = Fleet(
        folder,
        replicas=arguments.replicas,
        spare=2,
        flags=ENGINE_FLAGS,
        settings={**SETTINGS, "workers": arguments.workers},
    )
    try:
        await fleet.start()
        return await soak(fleet, arguments, Habits())
    finally:
        await fleet.stop()


async def soak(fleet: Fleet, arguments: argparse.Namespace, habits: Habits) -> Report:
    """Let users and chaos loose on a running fleet; what came of it."""
    await asyncio.sleep(2)
    descriptors = fleet.descriptors()
    seconds = arguments.minutes * 60
    users = Users(fleet.port, habits, arguments.seed)
    chaos = Chaos(fleet, arguments.seed, arguments.pause, arguments.kill_workers)
    samples: list[Sample] = []
    began = time.monotonic()
    users.start(arguments.streams)
    chaos.start()
    while (elapsed := time.monotonic() - began) < seconds:
        samples.append(Sample(elapsed, fleet.resident(), fleet.descriptors()))
        if len(samples) % 10 == 1:
            told = dict(sorted(users.tally.outcomes.items()))
            print(f"{elapsed:6.0f} s  {users.tally.tokens} tokens  {told}", file=sys.stderr, flush=True)
        await asyncio.sleep(1)
    await chaos.stop()
    await users.stop(SETTLE_DEADLINE + habits.patience)
    try:
        await until(fleet.settled, "the ledger settles", SETTLE_DEADLINE)
    except TimeoutError as failure:
        print(failure, file=sys.stderr)
    leaked = await _leaked(fleet, descriptors)
    return account(
        tally=users.tally,
        outcomes=await fleet.outcomes(),
        replicas=fleet.replicas,
        did=chaos.did,
        rest={
            **{f"unsettled {name}": count for name, count in unsettled(await fleet.ledger()).items()},
            "leaked descriptors": leaked,
        },
        samples=[one for one in samples if one.at >= WARM_UP_SHARE * seconds],
    )


async def _leaked(fleet: Fleet, before: int) -> int:
    """Descriptors of the router above those it had; connections may take a while to close."""
    end = time.monotonic() + DESCRIPTOR_DEADLINE
    while (now := fleet.descriptors()) > before and time.monotonic() < end:
        await asyncio.sleep(0.5)
    return max(0, now - before)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--streams", type=int, default=200, help="users at a time")
    parser.add_argument("--replicas", type=int, default=8)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of users and chaos")
    parser.add_argument("--pause", type=float, default=1.0, help="mean seconds between two troubles")
    parser.add_argument("--workers", type=int, default=1, help="processes of the router")
    parser.add_argument(
        "--kill-workers", type=float, default=0.0, help="mean seconds between two deaths of these, 0 for none"
    )
    parser.add_argument("--json", type=Path, help="also write the whole report there")
    parser.add_argument("--keep", type=Path, help="keep logs and journals in this folder")
    return parser.parse_args(arguments)


def main() -> int:
    """Soak, print the table, and tell by the exit status whether all that must be zero is."""
    arguments = parse()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            report = runner.run(run(arguments, folder))
    settings = {name: str(value) for name, value in vars(arguments).items()}
    if arguments.json:
        arguments.json.write_text(json.dumps({"arguments": settings, **report.as_json()}, indent=2) + "\n")
    print(report.table())
    return 0 if report.sound else 1


if __name__ == "__main__":
    sys.exit(main())
