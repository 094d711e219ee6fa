"""Users in a closed loop: each asks its next question as soon as the last answer has ended."""

import asyncio

from replicarouter.clock import Clock
from replicarouter.loadgen.client import Client
from replicarouter.loadgen.report import Tally
from replicarouter.loadgen.workload import Workload, http_request
from replicarouter.tasks import TaskSet

PAUSE_AFTER_FAILURE = 0.25
"""Seconds a user waits after a failure, so that a server that refuses is not flooded."""


class Users:
    """`count` users of the server at `host` and `port`; what they see is in `tally`."""

    def __init__(self, host: str, port: int, *, count: int, workload: Workload, clock: Clock) -> None:
        self.tally = Tally()
        self._count = count
        self._workload = workload
        self._clock = clock
        self._address = host, port
        self._tasks = TaskSet()

    def start(self) -> None:
        """Let all of them ask at once."""
        for number in range(self._count):
            self._tasks.start(self._ask_for_ever(number), f"user {number}")

    async def stop(self) -> None:
        """Cut what is under way and close all connections."""
        await self._tasks.close()

    async def _ask_for_ever(self, number: int) -> None:
        host, port = self._address
        client = Client(host, port, tally=self.tally, clock=self._clock)
        try:
            for body in self._workload.bodies(number):
                answer = await client.ask(http_request(body, host=f"{host}:{port}"))
                if answer.failure is not None:
                    await asyncio.sleep(PAUSE_AFTER_FAILURE)
        finally:
            client.close()
