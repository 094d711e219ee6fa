"""Says that requests are refused for lack of room, without a line for each of many."""

import logging
from collections.abc import Mapping

from replicarouter.clock import Seldom
from replicarouter.exchange import Exchange

log = logging.getLogger(__name__)

SETTINGS: Mapping[str, str] = {
    "queue_full": "admission.max_queued",
    "queue_timeout": "admission.queue_timeout",
    "overloaded": "",
    "no_replica": "",
}
"""What is worth a warning, and the setting that has to do with it, if one has."""


class Refusals:
    """Tells of each kind of refusal at most once in a while, and how many there were since."""

    def __init__(self) -> None:
        self._seldom = {outcome: Seldom() for outcome in SETTINGS}

    def observe(self, exchange: Exchange) -> None:
        """Take note of how a request ended."""
        seldom = self._seldom.get(exchange.outcome)
        if seldom is None:
            return
        count = seldom.tell(exchange.ended_at)
        if count:
            facts = {"reason": exchange.outcome, "model": exchange.model, "count": count}
            setting = SETTINGS[exchange.outcome]
            log.warning("requests refused", extra=facts | ({"setting": setting} if setting else {}))
