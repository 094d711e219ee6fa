"""One log line for each exchange: what was asked, who answered, how it ended. No prompt, no key."""

import logging

from replicarouter.exchange import Exchange

log = logging.getLogger("replicarouter.access")


def log_exchange(exchange: Exchange) -> None:
    """Log an ended exchange; `outcome@stage` says how it ended and where."""
    if not log.isEnabledFor(logging.INFO):
        return
    log.info(
        "request",
        extra={
            "request_id": exchange.client_id[:200],
            "endpoint": exchange.endpoint,
            "model": exchange.model,
            "replica": exchange.replica,
            "status": exchange.status,
            "outcome": f"{exchange.outcome}@{exchange.stage.label}",
            "seconds": round(exchange.ended_at - exchange.accepted_at, 4),
            "bytes_in": exchange.bytes_in,
            "bytes_out": exchange.bytes_out,
            "attempts": exchange.attempts,
        },
    )
