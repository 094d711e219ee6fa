"""What the requests of this process at each replica show of it, for the judgement of trials and stalls."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from replicarouter.errors import IdleTimeout, ResponseHeadTimeout, RouterError
from replicarouter.exchange import Exchange, Stage
from replicarouter.fleet.registry import Fleet
from replicarouter.fleet.replica import Replica

log = logging.getLogger(__name__)

AT_WORK = frozenset((Stage.SENT, Stage.STREAMING))
SWITCHING_PROTOCOLS = 101
TOO_MANY_REQUESTS = 429
SERVER_ERROR = 500


@dataclass(slots=True)
class Work:
    """A replica's requests that are sent or streaming, `at_work` in number. `tried` of them were leased since
    its trial began, and `spoke`: one of these has a good answer's head. `waiting` of them expect bytes;
    `current` are those of them that its present engine has, and `heard_at` is when these got the last byte.
    `asked_at` is when one of the waiting last got a byte or was sent, 0 without any. Times are seconds on the
    router's clock."""

    at_work: int = 0
    tried: int = 0
    spoke: bool = False
    waiting: int = 0
    current: int = 0
    heard_at: float = 0.0
    asked_at: float = 0.0

    def note(self, exchange: Exchange, replica: Replica) -> None:
        """Count one of its requests."""
        self.at_work += 1
        if exchange.leased_at >= replica.tried_at:
            self.tried += 1
            self.spoke = self.spoke or _speaks_for_it(exchange)
        if not expects_bytes(exchange):
            return
        self.waiting += 1
        self.asked_at = max(self.asked_at, quiet_since(exchange))
        if not from_former_life(exchange, replica):
            self.current += 1
            self.heard_at = max(self.heard_at, exchange.last_word_at)


NOTHING = Work()
"""A replica without requests. Not to be changed."""


class Floor(Protocol):
    """Where requests are at work."""

    def works(self) -> Mapping[str, Work]:
        """What there is at each replica, by its name; nothing for those without requests."""

    def give_up(self, replica: Replica, now: float, *, everything: bool) -> None:
        """End the requests of `replica` that nobody will answer, or all that wait for a byte."""


class OwnFloor:
    """The requests of this process. `end`: seconds of silence after which a request is given up whose engine
    has been replaced, 0 for never."""

    def __init__(self, fleet: Fleet, end: float) -> None:
        self._fleet = fleet
        self._end = end
        self._at_work: dict[str, list[Exchange]] = {}

    def works(self) -> Mapping[str, Work]:
        """Look at all of them."""
        self._at_work = {}
        for exchange in self._fleet.ledger.in_flight.values():
            if exchange.stage in AT_WORK:
                self._at_work.setdefault(exchange.replica, []).append(exchange)
        works = {}
        for replica in self._fleet.replicas:
            exchanges = self._at_work.get(replica.name)
            if exchanges:
                work = works[replica.name] = Work()
                for exchange in exchanges:
                    work.note(exchange, replica)
        return works

    def give_up(self, replica: Replica, now: float, *, everything: bool) -> None:
        """Of those that the last look found: all that expect bytes, or those that were sent to an engine
        which has been replaced since and have heard nothing for `end` seconds."""
        if not self._end:
            return
        ended = 0
        for exchange in self._at_work.get(replica.name, ()):
            lost = from_former_life(exchange, replica) and now - quiet_since(exchange) >= self._end
            if expects_bytes(exchange) and (everything or lost):
                ended += exchange.interrupted is None and exchange.interrupt(_given_up(exchange))
        if ended:
            facts = {"replica": replica.name, "count": ended}
            log.warning("requests of a stalled replica ended", extra=facts)


def expects_bytes(exchange: Exchange) -> bool:
    """Not while its client takes nothing or still sends, and not in a conversation that may pause."""
    return not exchange.held and exchange.status != SWITCHING_PROTOCOLS


def quiet_since(exchange: Exchange) -> float:
    """When something last happened to a request that was sent."""
    return max(exchange.sent_at, exchange.last_word_at)


def from_former_life(exchange: Exchange, replica: Replica) -> bool:
    """Whether it was sent to an engine that has been replaced since."""
    return quiet_since(exchange) < replica.reborn_at


def _speaks_for_it(exchange: Exchange) -> bool:
    """A response that has begun well is answer enough: its end may be far away."""
    status = exchange.status if exchange.head_at else 0
    return 0 < status < SERVER_ERROR and status != TOO_MANY_REQUESTS


def _given_up(exchange: Exchange) -> RouterError:
    if exchange.stage is Stage.SENT:
        return ResponseHeadTimeout("The replica stalled and sent no answer; try again.")
    return IdleTimeout("The replica stalled in the middle of its answer.")
