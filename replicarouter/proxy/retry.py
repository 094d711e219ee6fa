"""Whether a failed attempt may be followed by another. A decision over values; it does nothing."""

from replicarouter.errors import RouterError


def may_retry(error: RouterError, attempts: int, *, most: int) -> bool:
    """Only what no replica can have begun to work on, and at most `most` attempts in all."""
    return error.retryable and attempts < most
