"""One background loop for each replica, for as long as it is in the fleet."""

from collections.abc import Awaitable, Callable, Sequence
from math import ceil

from replicarouter.fleet.replica import Replica
from replicarouter.tasks import TaskSet, every

Look = Callable[[Replica], Awaitable[None]]
"""What is done in turn with a replica."""

MOMENTS = 4
"""Moments of an interval over which more replicas than that are spread, in groups: it costs less than one by
one, as the processor has the program at hand."""

TOGETHER = 4
"""Most replicas of such a group, which hold up streams for about a millisecond; for more there are more
moments."""

PLACES = 16
"""Moments of an interval that replicas are given which join later."""

GOLDEN = (5**0.5 - 1) / 2
"""Its multiples, wrapped into 0 to 1, keep apart however many there are."""


class Watches:
    """Runs `look` for every replica, `interval` seconds apart; `name` is for people who list tasks."""

    def __init__(self, look: Look, interval: float, name: str) -> None:
        self._look = look
        self._interval = interval
        self._name = name
        self._ends: dict[Replica, Callable[[], object]] = {}
        self._tasks = TaskSet()
        self._started = False

    def start(self, replicas: Sequence[Replica], *, spread: bool = False) -> None:
        """Begin: at once, or `spread` evenly over an interval when everyone was looked at just now.

        All looks after the first are spread, a few replicas at a time.
        """
        self._started = True
        count = len(replicas)
        moments = min(count, max(MOMENTS, ceil(count / TOGETHER)))
        for turn, replica in enumerate(replicas):
            later = self._interval * (turn * moments // count + 1) / moments
            self._watch(replica, delay=later if spread else 0.0, origin=later)

    def add(self, replica: Replica) -> None:
        """Watch one more, from now on; before `start` there is nothing to do."""
        if self._started:
            # Far from most of the others, whichever these are.
            later = int(PLACES * (GOLDEN * len(self._ends) % 1.0)) / PLACES
            self._watch(replica, origin=self._interval * later)

    def remove(self, replica: Replica) -> None:
        """Look at it no more; a look that is under way is broken off."""
        end = self._ends.pop(replica, None)
        if end is not None:
            end()

    async def stop(self) -> None:
        """End all loops."""
        self._started = False
        self._ends.clear()
        await self._tasks.close()

    def _watch(self, replica: Replica, *, delay: float = 0.0, origin: float) -> None:
        async def turn() -> None:
            await self._look(replica)

        name = f"{self._name} {replica.name}"
        loop = self._tasks.start(every(self._interval, turn, name, delay=delay, origin=origin), name)
        self._ends[replica] = loop.cancel
