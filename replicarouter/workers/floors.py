"""What the requests of all workers show of the replicas: written by each of them, read by the keeper."""

from collections.abc import Callable, Mapping, Sequence

from replicarouter.commons.layout import (
    ASKED_AT,
    AT_WORK,
    CURRENT,
    HEARD_AT,
    SPOKE,
    TRIED,
    TRIED_SINCE,
    WAITING,
)
from replicarouter.commons.memory import Commons
from replicarouter.commons.seat import Seat
from replicarouter.fleet.registry import Fleet
from replicarouter.fleet.replica import Replica
from replicarouter.fleet.work import Floor, Work


class Looks:
    """Writes a worker's own."""

    def __init__(self, fleet: Fleet, floor: Floor, seat: Seat) -> None:
        self._fleet = fleet
        self._floor = floor
        self._cells = seat.looks
        self._written: set[int] = set()

    def write(self) -> Mapping[str, Work]:
        """Look, and note what is there."""
        works = self._floor.works()
        written, self._written = self._written, set()
        for replica in self._fleet:
            work = works.get(replica.name)
            if work is not None:
                self._written.add(replica.row)
                self._put(replica, work)
        for row in written - self._written:
            # When it was heard last stays true.
            for column in (AT_WORK, TRIED, SPOKE, WAITING, CURRENT, ASKED_AT):
                self._cells[row + column] = 0.0
        return works

    def _put(self, replica: Replica, work: Work) -> None:
        cells, row = self._cells, replica.row
        cells[row + AT_WORK] = work.at_work
        cells[row + TRIED] = work.tried
        cells[row + TRIED_SINCE] = replica.tried_at
        cells[row + SPOKE] = work.spoke
        cells[row + WAITING] = work.waiting
        cells[row + CURRENT] = work.current
        cells[row + HEARD_AT] = max(work.heard_at, replica.heard_at)
        cells[row + ASKED_AT] = work.asked_at


class AllFloors:
    """Adds up what the workers wrote, a fraction of a second ago. `give_up` is told of replicas all of whose
    requests are to be ended; those of engines that were replaced the workers end by themselves."""

    def __init__(self, fleet: Fleet, commons: Commons, give_up: Callable[[Replica], None]) -> None:
        self._fleet = fleet
        self._commons = commons
        self._give_up = give_up

    def works(self) -> Mapping[str, Work]:
        """Read all of it; `heard_at` of replicas is brought up to date."""
        works = {}
        looks = [seat.looks for seat in self._commons.seats]
        for replica in self._fleet:
            work = self._sum(replica, looks)
            replica.heard_at = max(replica.heard_at, work.heard_at)
            if work.at_work:
                works[replica.name] = work
        return works

    def give_up(self, replica: Replica, now: float, *, everything: bool) -> None:  # noqa: ARG002
        """Have the workers end what nobody will answer."""
        if everything:
            self._give_up(replica)

    def _sum(self, replica: Replica, looks: "Sequence[memoryview[float]]") -> Work:
        work, row = Work(), replica.row
        for cells in looks:
            work.heard_at = max(work.heard_at, cells[row + HEARD_AT])
            if not cells[row + AT_WORK]:
                continue
            work.at_work += int(cells[row + AT_WORK])
            work.waiting += int(cells[row + WAITING])
            work.current += int(cells[row + CURRENT])
            work.asked_at = max(work.asked_at, cells[row + ASKED_AT])
            if cells[row + TRIED_SINCE] == replica.tried_at:
                work.tried += int(cells[row + TRIED])
                work.spoke = work.spoke or bool(cells[row + SPOKE])
        return work
