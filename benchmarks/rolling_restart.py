"""A rolling restart under load: each replica is drained, restarted and given back, and no request fails.

    python -m benchmarks.rolling_restart --streams 200 --replicas 8

The exit status is 1 when a request failed, or was run twice.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import uvloop

from benchmarks.soak import ENGINE_FLAGS, SETTINGS
from benchmarks.soak_account import Report, account
from benchmarks.soak_fleet import Fleet, Replica, unsettled, until
from benchmarks.soak_users import LEFT, OK, Habits, Users

HABITS = Habits(leaving=0.0, slow=0.0, longest=40)
DRAIN_TIMEOUT = 60  # seconds


async def run(arguments: argparse.Namespace, folder: Path) -> Report:
    """Restart every replica once while users ask; what came of it."""
    fleet = Fleet(folder, replicas=arguments.replicas, spare=0, flags=ENGINE_FLAGS, settings=SETTINGS)
    did: Counter[str] = Counter()
    try:
        await fleet.start()
        users = Users(fleet.port, HABITS, arguments.seed)
        users.start(arguments.streams)
        await asyncio.sleep(8)
        for replica in fleet.replicas:
            began = time.monotonic()
            await restart(fleet, replica)
            did["restart"] += 1
            print(
                f"{replica.name} restarted in {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True
            )
        await users.stop(HABITS.patience)
        await until(fleet.settled, "the ledger settles")
        report = account(
            tally=users.tally,
            outcomes=await fleet.outcomes(),
            replicas=fleet.replicas,
            did=did,
            rest=unsettled(await fleet.ledger()),
            samples=(),
        )
    finally:
        await fleet.stop()
    report.zero["failed"] = sum(count for name, count in report.client.items() if name not in (OK, LEFT))
    return report


async def restart(fleet: Fleet, replica: Replica) -> None:
    """As an operator does it."""
    await command(fleet, "drain", replica.name, "--timeout", str(DRAIN_TIMEOUT))
    await replica.stop()
    replica.start()
    await until(replica.serving, f"{replica.name} serves again")
    await command(fleet, "undrain", replica.name)

    async def ready() -> bool:
        rows = (await fleet.ledger())["replicas"]
        return any(row["name"] == replica.name and row["state"] == "ready" for row in rows)

    await until(ready, f"{replica.name} is ready again")


async def command(fleet: Fleet, *arguments: str) -> None:
    """`replicarouter replicas ARGUMENTS`; RuntimeError with its words when it fails."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "replicarouter", "replicas", *arguments),
        *("--admin", f"http://127.0.0.1:{fleet.admin_port}"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"replicas {' '.join(arguments)}: {said.decode()}")


def main() -> int:
    """Restart them all, print the table, and tell by the exit status whether nothing failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--streams", type=int, default=200, help="users at a time")
    parser.add_argument("--replicas", type=int, default=8)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the users")
    parser.add_argument("--json", type=Path, help="also write the whole report there")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        report = runner.run(run(arguments, Path(folder)))
    if arguments.json:
        arguments.json.write_text(json.dumps(report.as_json(), indent=2) + "\n")
    print(report.table())
    return 0 if report.sound else 1


if __name__ == "__main__":
    sys.exit(main())
