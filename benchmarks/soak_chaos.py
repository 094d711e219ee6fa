"""What happens to the replicas during a soak: at any time to less than half of them, at random, seeded."""

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from benchmarks.soak_fleet import Fleet, Replica, until

FAULTS: tuple[dict[str, Any], ...] = (
    {"kind": "reset", "share": 0.3, "at": "start"},
    {"kind": "reset", "share": 0.3, "at": "head"},
    {"kind": "reset", "share": 0.3, "at": 0},
    {"kind": "reset", "share": 0.3, "at": 7},
    {"kind": "close", "share": 0.3, "at": "start"},
    {"kind": "close", "share": 0.3, "at": "head"},
    {"kind": "close", "share": 0.3, "at": 7},
    {"kind": "hang", "count": 3},
    {"kind": "hang", "count": 3, "at": 5},
    {"kind": "hang", "on": "probes"},
    {"kind": "garbage", "share": 0.3},
    {"kind": "garbage", "share": 0.3, "at": 5},
    {"kind": "slow", "delay": 1.0},
    {"kind": "slow", "factor": 5},
    {"kind": "status"},
    {"kind": "status", "share": 0.5},
    {"kind": "status", "status": 429, "retry_after": 1},
    {"kind": "status", "status": 500, "share": 0.5},
    {"kind": "status", "reason": "loading", "on": "all"},
    {"kind": "draining"},
    {"kind": "frozen"},
    {"kind": "frozen", "heads": False},
    {"kind": "core_killed"},
    {"kind": "sigterm_hang"},
    {"kind": "refuse"},
    {"kind": "flapping", "up": 0.7, "down": 0.5},
    {"kind": "flapping", "up": 0.7, "down": 0.5, "how": "refuse"},
    {"kind": "keep_alive", "idle": 0.05},
    {"kind": "keep_alive", "idle": 1.0},
    {"kind": "connection_close_every", "every": 2},
    {"kind": "health_slow", "delay": 3.0},
    {"kind": "no_models"},
)

KILLED_WORKER = "kill a worker of the router"

LONG = {"frozen": (3, 14), "hang": (2, 6), "sigterm_hang": (3, 12)}
"""Seconds that a fault lasts, where it is more than the 1 to 5 of the others."""


class Chaos:
    """Troubles replicas until it is told to stop. `did` counts what it has done."""

    def __init__(self, fleet: Fleet, seed: int, pause: float, kill_every: float = 0.0) -> None:
        """`kill_every`: mean seconds between two deaths of workers of the router, 0 for none."""
        self.did: Counter[str] = Counter()
        self._kill_every = kill_every
        self._fate = random.Random(f"workers/{seed}")
        self._killer: asyncio.Task[None] | None = None
        self._fleet = fleet
        self._chance = random.Random(f"chaos/{seed}")
        self._pause = pause
        self._troubled: set[Replica] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._driver: asyncio.Task[None] | None = None
        self._members = list(fleet.members)
        self._spare = [one for one in fleet.replicas if one not in fleet.members]

    def start(self) -> None:
        self._driver = asyncio.ensure_future(self._drive())
        if self._kill_every:
            self._killer = asyncio.ensure_future(self._kill_workers())

    async def stop(self) -> None:
        """Begin nothing more, let what has begun end, and heal everybody."""
        for endless in (self._driver, self._killer):
            if endless is not None:
                endless.cancel()
                with suppress(asyncio.CancelledError):
                    await endless
        if self._tasks:
            await asyncio.wait(self._tasks)
        for task in self._tasks:
            task.result()
        for replica in self._fleet.replicas:
            await replica.fault(None)

    async def _drive(self) -> None:
        troubles: list[tuple[int, Callable[[Replica], Awaitable[None]]]] = [
            (10, self._fault),
            (3, self._kill),
            (2, self._suspend),
            (1, self._terminate),
            (2, self._drain),
            (2, self._exchange),
        ]
        weights = [weight for weight, _ in troubles]
        while True:
            await asyncio.sleep(self._chance.expovariate(1 / self._pause))
            well = [one for one in self._members if one not in self._troubled]
            if len(well) <= len(self._members) // 2 + 1:
                continue
            (_, trouble), replica = self._chance.choices(troubles, weights)[0], self._chance.choice(well)
            self._troubled.add(replica)
            task = asyncio.ensure_future(self._befall(replica, trouble))
            self._tasks.add(task)
            task.add_done_callback(self._settle)

    async def _kill_workers(self) -> None:
        while True:
            await asyncio.sleep(self._fate.expovariate(1 / self._kill_every))
            self._fleet.processes()
            if self._fleet.workers:
                self.did[KILLED_WORKER] += 1
                os.kill(self._fate.choice(self._fleet.workers), signal.SIGKILL)

    def _settle(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or task.exception() is None:
            self._tasks.discard(task)

    async def _befall(self, replica: Replica, trouble: Callable[[Replica], Awaitable[None]]) -> None:
        try:
            await trouble(replica)
        finally:
            self._troubled.discard(replica)

    async def _fault(self, replica: Replica) -> None:
        """A scripted fault; afterwards a moment of rest."""
        fault = self._chance.choice(FAULTS)
        seconds = self._chance.uniform(*LONG.get(fault["kind"], (1, 5)))
        self.did[f"fault {fault['kind']}"] += 1
        seed = self._chance.randrange(1 << 16)
        own = {"seed": seed} if "share" in fault else {}
        await replica.fault({**fault, **own, "seconds": seconds})
        await asyncio.sleep(seconds + 0.5)
        await replica.fault(None)

    async def _kill(self, replica: Replica) -> None:
        self.did["kill"] += 1
        replica.signal(signal.SIGKILL)
        await asyncio.sleep(self._chance.uniform(0, 4))
        await self._start(replica)

    async def _terminate(self, replica: Replica) -> None:
        """A rolling update that does not ask the router first."""
        self.did["terminate"] += 1
        await replica.stop(self._chance.uniform(0, 6))
        await self._start(replica)

    async def _start(self, replica: Replica) -> None:
        await replica.stop(0)
        replica.start()
        await until(replica.serving, f"{replica.name} serves again")

    async def _suspend(self, replica: Replica) -> None:
        """Stop the whole process and let it go on: its port takes connections that nobody answers."""
        self.did["suspend"] += 1
        replica.signal(signal.SIGSTOP)
        await asyncio.sleep(self._chance.uniform(1, 12))
        replica.signal(signal.SIGCONT)

    async def _drain(self, replica: Replica) -> None:
        self.did["drain"] += 1
        await self._fleet.admin("POST", f"/{replica.name}/drain")
        await asyncio.sleep(self._chance.uniform(1, 6))
        await self._fleet.admin("POST", f"/{replica.name}/undrain")

    async def _exchange(self, replica: Replica) -> None:
        """Add a spare replica, and remove one."""
        if not self._spare:
            return
        self.did["add and remove"] += 1
        fresh = self._spare.pop()
        status = await self._fleet.admin("POST", "", {"url": fresh.url})
        if status != 201:
            raise RuntimeError(f"adding {fresh.name} was answered {status}")
        self._members.append(fresh)
        status = await self._fleet.admin("DELETE", f"/{replica.name}")
        self._members.remove(replica)

        async def gone() -> bool:
            rows = (await self._fleet.ledger())["replicas"]
            return all(row["name"] != replica.name for row in rows)

        await until(gone, f"{replica.name} has been removed", 120)
        self._spare.append(replica)
