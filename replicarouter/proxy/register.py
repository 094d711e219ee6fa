"""The register of requests: each gets its name, is counted while it is here, and is settled exactly once."""

import itertools
import secrets
from collections.abc import Callable

from multidict import MultiMapping, istr

from replicarouter.clock import Clock
from replicarouter.exchange import CLIENT_GONE, Exchange
from replicarouter.fleet.ledger import Ledger
from replicarouter.protocol.headers import usable_request_id
from replicarouter.protocol.traceparent import TRACEPARENT, TRACESTATE, Tracing

REQUEST_ID = istr("X-Request-Id")

NAMING = (REQUEST_ID, TRACEPARENT, TRACESTATE)
"""Header fields that may name a request, and whose trace it belongs to."""


class Register:
    """Opens and closes exchanges; `observe` is told of each that has ended."""

    def __init__(
        self, ledger: Ledger, observe: Callable[[Exchange], None], clock: Clock, tracing: Tracing
    ) -> None:
        self._ledger = ledger
        self._observe = observe
        self._clock = clock
        self._tracing = tracing
        self._prefix = f"rr-{secrets.token_hex(4)}-"
        self._serial = itertools.count(1)

    def make_id(self) -> str:
        """A request id that nobody else has."""
        return f"{self._prefix}{next(self._serial):x}"

    def open(self, method: str, path: str, endpoint: str, headers: MultiMapping[str] | None) -> Exchange:
        """Name a request and keep it in flight; what a replica sees as its id is unique among these.

        Of `headers` those of `NAMING` are enough. Without any, since they could not be read, it has no id of
        its client's and belongs to no trace.
        """
        given_id = headers.get(REQUEST_ID) if headers else None
        in_flight = self._ledger.in_flight
        made = self.make_id()
        upstream_id = made if given_id is None else usable_request_id(given_id) or made
        while upstream_id in in_flight:
            upstream_id = f"{upstream_id[:100]}-{next(self._serial):x}"
        exchange = Exchange(method, path, endpoint, self._clock(), given_id or made, upstream_id)
        if headers is not None:
            exchange.trace = self._tracing.of(headers)
        in_flight[upstream_id] = exchange
        self._ledger.arrived.add((endpoint,))
        return exchange

    def settle(self, exchange: Exchange) -> None:
        """It has ended, however it did."""
        ledger = self._ledger
        exchange.on_interrupt = None
        exchange.ended_at = self._clock()
        del ledger.in_flight[exchange.upstream_id]
        if exchange.outcome == CLIENT_GONE:
            ledger.client_gone.add((exchange.stage.label,))
        ledger.finished.add((exchange.endpoint, exchange.model, exchange.replica, exchange.outcome))
        self._observe(exchange)
