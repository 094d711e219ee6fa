"""Whether a failed attempt may be followed by another. Decisions over values; nothing here acts."""

from collections import deque
from dataclasses import dataclass

from replicarouter.errors import Fault, RouterError

WINDOW = 10.0
"""Seconds whose requests the budget is a share of."""


@dataclass(frozen=True, slots=True)
class RetryRules:
    """`attempts`: most replicas for one request. `resend`: also what an engine may be executing is sent
    again."""

    attempts: int
    resend: bool


def may_retry(error: RouterError, attempts: int, rules: RetryRules) -> bool:
    """Only what no replica can have begun to work on, unless the operator says otherwise."""
    if attempts >= rules.attempts:
        return False
    return error.retryable or (rules.resend and error.fault is Fault.REPLICA)


class RetryBudget:
    """Retries allowed: `floor` for each second and `share` of the requests, both over the last ten
    seconds, so that a failing fleet is not hit harder by its own retries.

    The shape is Finagle's retry budget; counts are kept by whole seconds.
    """

    def __init__(self, floor: float, share: float) -> None:
        self.floor = floor
        self.share = share
        self._second = 0
        self._requests = 0
        self._retries = 0
        self._past: deque[tuple[int, int, int]] = deque()

    def note_request(self, now: float) -> None:
        """Count a request that is tried for the first time."""
        if int(now) != self._second:
            self._turn(int(now))
        self._requests += 1

    def take(self, now: float) -> bool:
        """Take one retry out of the budget; False when there is none left."""
        if int(now) != self._second:
            self._turn(int(now))
        oldest = now - WINDOW
        while self._past and self._past[0][0] <= oldest:
            self._past.popleft()
        requests = self._requests + sum(second[1] for second in self._past)
        retries = self._retries + sum(second[2] for second in self._past)
        if retries + 1 > self.floor * WINDOW + self.share * requests:
            return False
        self._retries += 1
        return True

    def _turn(self, second: int) -> None:
        self._past.append((self._second, self._requests, self._retries))
        if len(self._past) > WINDOW + 1:
            self._past.popleft()
        self._second, self._requests, self._retries = second, 0, 0
