"""Exchanges that have ended, on their way to those who count and log them."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from replicarouter.exchange import OK, Exchange

log = logging.getLogger(__name__)

Observe = Callable[[Exchange], None]


class Ended:
    """Tells `everybody` of exchanges that have ended, and only those `of_success` of those that went well.

    It does so in a row for all that end in one turn of the loop, since what is done for the first of them
    brings into the processor's caches what all others need; and before anybody runs who is woken later, so
    that who has an answer, and asks, finds it counted.
    """

    __slots__ = ("_everybody", "_exchanges", "_loop", "_of_success")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        everybody: Sequence[Observe],
        of_success: Sequence[Observe],
    ) -> None:
        self._loop = loop
        self._everybody = everybody
        self._of_success = of_success
        self._exchanges: list[Exchange] = []

    def add(self, exchange: Exchange) -> None:
        """It has ended."""
        if not self._exchanges:
            self._loop.call_soon(self.tell)
        self._exchanges.append(exchange)

    def tell(self) -> None:
        """Tell of all that were added."""
        exchanges, self._exchanges = self._exchanges, []
        for exchange in exchanges:
            for observe in self._of_success if exchange.outcome == OK else self._everybody:
                try:
                    observe(exchange)
                except Exception:
                    # The others must not go uncounted for it.
                    log.exception("internal error", extra={"request_id": exchange.client_id})
