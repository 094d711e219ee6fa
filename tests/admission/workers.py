"""Workers with queues of their own and replicas in common: each in a process, told what to do by lines."""

import asyncio
import json
import os
import select
import time
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from replicarouter.admission.bell import Bell
from replicarouter.admission.controller import Admission
from replicarouter.admission.grants import QueueRules
from replicarouter.admission.lease import Lease
from replicarouter.commons.memory import Commons
from replicarouter.errors import RouterError
from replicarouter.exchange import Stage
from replicarouter.fleet.common_ledger import WorkerLedger
from replicarouter.fleet.lifecycle import Event
from replicarouter.fleet.registry import Fleet
from replicarouter.policies.least_outstanding import LeastOutstanding
from tests.admission.rig import a_plan, desks_for
from tests.commons.children import Child
from tests.scene import a_request, an_exchange, replica_settings

PATIENCE = 20.0
"""Seconds in which something has to happen that happens at once."""


@dataclass(frozen=True)
class House:
    """What all workers go by: replicas by name with their rows, the limit of each, the queue's rules."""

    rows: dict[str, int]
    most: int = 1
    requests: int = 100
    seconds: float = 0.0
    shares: tuple[tuple[str, float], ...] = ()


class Workers:
    """Two workers and what they tell. `granted` are the names of requests in the order of their grants."""

    def __init__(self, commons: Commons, house: House) -> None:
        self.commons = commons
        self.house = house
        self._events, self._tell = os.pipe()
        self._rest = b""
        self._commands: list[int] = []
        self.children: list[Child] = []
        self.granted: list[str] = []
        for index in range(commons.workers):
            self.start(index)

    def start(self, index: int) -> None:
        """Let a worker begin, in place of one that has died if there was one."""
        read, write = os.pipe()
        child = Child(_work, self.commons, self.house, index, read, self._tell)
        os.close(read)
        if index < len(self.children):
            os.close(self._commands[index])
            self.children[index], self._commands[index] = child, write
        else:
            self.children.append(child)
            self._commands.append(write)
        self.await_word(f"up {index}")

    def come(self, index: int, name: str, *, caller: str = "", rank: int = 0, brief: bool = False) -> None:
        """Let a request come; returns when it is granted, queued or refused. A `brief` one ends by itself."""
        self.say(index, "come", name, caller, rank, brief)
        self.await_word(f"came {name}")

    def end(self, index: int, name: str) -> None:
        """Let a request end that was granted."""
        self.say(index, "end", name)

    def say(self, index: int, *words: Any) -> None:
        """Tell a worker something."""
        os.write(self._commands[index], json.dumps(words).encode() + b"\n")

    def await_word(self, word: str) -> None:
        """Wait until a worker has told this."""
        while self.next_word() != word:
            pass

    def await_granted(self, *names: str) -> None:
        """Wait until just these have been granted, from the beginning, in this order."""
        while len(self.granted) < len(names):
            self.next_word()
        assert self.granted == list(names)

    def next_word(self) -> str:
        """The next thing that a worker tells."""
        end = time.monotonic() + PATIENCE
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._events], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"nothing more was told after {self.granted}"
            self._rest += os.read(self._events, 65536)
        word, _, self._rest = self._rest.partition(b"\n")
        told = word.decode()
        if told.startswith("granted "):
            self.granted.append(told.removeprefix("granted "))
        return told

    def close(self) -> None:
        """End all workers."""
        for child in self.children:
            if not child.ended:
                child.kill()
        for end in (self._events, self._tell, *self._commands):
            os.close(end)


def _work(commons: Commons, house: House, index: int, commands: int, tell: int) -> None:
    asyncio.run(_Worker(commons, house, index, tell).run(commands))


class _Worker:
    def __init__(self, commons: Commons, house: House, index: int, tell: int) -> None:
        self._tell = tell
        self._index = index
        self._seat = commons.seat(index)
        self._fleet = Fleet((), WorkerLedger(self._seat), most=house.most)
        for name, row in house.rows.items():
            replica = self._fleet.join(replica_settings(name), "file", row)
            self._fleet.list_models(replica, [{"id": "m1"}])
            self._fleet.tell(replica, Event.PASSED, "said so")
        self._admission = Admission(
            self._fleet.ledger,
            desks_for(a_plan(LeastOutstanding)),
            rules=QueueRules(house.requests, house.seconds, dict(house.shares)),
            clock=time.monotonic,
            random=Random(index),
            idle=lambda replica: None,
        )
        self._pool = self._fleet.pool_for("m1")
        self._leases: dict[str, Lease] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def run(self, commands: int) -> None:
        bell = Bell(self._seat, [self._admission])
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(commands, "rb", buffering=0)
        )
        self._say(f"up {self._index}")
        while line := await reader.readline():
            word, *rest = json.loads(line)
            await getattr(self, f"_{word}")(*rest)
        bell.close()

    async def _come(self, name: str, caller: str, rank: int, brief: bool) -> None:
        exchange = an_exchange(upstream_id=name, caller=caller, priority=rank, model="m1")
        request = a_request()

        async def live() -> None:
            try:
                lease = self._admission.grant(request, self._pool, exchange, []) or (
                    await self._admission.wait(request, self._pool, exchange, [])
                )
            except RouterError as error:
                self._say(f"refused {name} {error.code}")
                return
            self._leases[name] = lease
            self._say(f"granted {name}")
            if brief:
                await self._end(name)

        self._tasks[name] = task = asyncio.ensure_future(live())
        for _ in range(3):
            await asyncio.sleep(0)
        assert exchange.stage is not Stage.RECEIVING or task.done()
        if task.done():
            task.result()
        self._say(f"came {name}")

    async def _end(self, name: str) -> None:
        self._admission.give_back(self._leases.pop(name), self._pool, outcome="ok", failed=False)

    async def _leave(self, name: str) -> None:
        self._tasks[name].cancel()

    def _say(self, word: str) -> None:
        os.write(self._tell, word.encode() + b"\n")


def rows(commons: Commons, names: Sequence[str]) -> dict[str, int]:
    """A row for each replica."""
    return {name: commons.add_row() for name in names}
