"""Whether a failed attempt may be followed by another. A decision over values; it does nothing."""

from replicarouter.errors import RouterError
from replicarouter.exchange import Exchange


def may_retry(error: RouterError, exchange: Exchange, *, most: int) -> bool:
    """Only what no replica can have begun to work on, only before the client has a byte, at most
    `most` attempts in all."""
    return error.retryable and not exchange.committed and exchange.attempts < most
