"""The requests in flight, for those who look and those who end one."""

import logging
from typing import Any, Protocol

from replicarouter.clock import Clock
from replicarouter.errors import Cancelled
from replicarouter.exchange import Exchange
from replicarouter.fleet.ledger import Ledger
from replicarouter.telemetry.report import request_report

log = logging.getLogger(__name__)


class Requests(Protocol):
    """Those of the whole router, wherever they are served. Raises `Overloaded` where nobody can tell now."""

    async def rows(self) -> list[dict[str, Any]]:
        """Each as a plain document, the oldest first."""

    async def cancel(self, request_id: str) -> bool:
        """End one, whatever it is doing: the one whose replica sees this id, which is unique; else the oldest
        whose client gave it. False when there is none that could still be ended."""

    async def tell(self) -> None:
        """Have all that is kept of requests, and counted only now and then, told as it is now."""


class OwnRequests:
    """Those of this process."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock

    async def rows(self) -> list[dict[str, Any]]:
        """Each as a plain document, the oldest first."""
        now = self._clock()
        return [request_report(exchange, now) for exchange in self._ledger.oldest_first()]

    async def cancel(self, request_id: str) -> bool:
        """End one."""
        exchange = self._in_flight(request_id)
        if exchange is None or not exchange.interrupt(Cancelled("An operator cancelled this request.")):
            return False
        log.info("request cancelled", extra={"request_id": exchange.upstream_id})
        return True

    async def tell(self) -> None:
        """Nothing is to be told where there is one process."""

    def _in_flight(self, request_id: str) -> Exchange | None:
        exchange = self._ledger.in_flight.get(request_id)
        if exchange is not None:
            return exchange
        named = (one for one in self._ledger.oldest_first() if one.client_id == request_id)
        return next(named, None)
