"""Whether another attempt may follow."""

import pytest

from replicarouter.errors import (
    BadReplicaResponse,
    ConnectFailed,
    Fault,
    IdleTimeout,
    InternalError,
    Overloaded,
    QueueTimeout,
    ReplicaDisconnected,
    ResponseHeadTimeout,
    RouterError,
    StaleConnection,
    TotalTimeout,
)
from replicarouter.proxy.retry import WINDOW, RetryBudget, RetryRules, may_retry

NEVER = [
    *(ReplicaDisconnected, StaleConnection, BadReplicaResponse, ResponseHeadTimeout, IdleTimeout),
    *(TotalTimeout, Overloaded, QueueTimeout, InternalError),
]
RULES = RetryRules(attempts=3, resend=False)


@pytest.mark.parametrize(("attempts", "allowed"), [(1, True), (2, True), (3, False), (4, False)])
def test_a_request_that_no_replica_saw_is_tried_again_up_to_the_limit(attempts: int, allowed: bool) -> None:
    assert may_retry(ConnectFailed("refused"), attempts, RULES) is allowed


def test_one_attempt_is_no_retry() -> None:
    assert not may_retry(ConnectFailed("refused"), 1, RetryRules(attempts=1, resend=True))


@pytest.mark.parametrize("error", NEVER)
def test_what_an_engine_may_be_working_on_is_not_tried_again(error: type[RouterError]) -> None:
    assert not may_retry(error("x"), 1, RULES)


@pytest.mark.parametrize("error", NEVER)
def test_resending_covers_the_failures_of_replicas_alone(error: type[RouterError]) -> None:
    allowed = may_retry(error("x"), 1, RetryRules(attempts=3, resend=True))
    assert allowed is (error.fault is Fault.REPLICA)


def taken(budget: RetryBudget, now: float) -> int:
    """How many retries the budget gives at this moment."""
    count = 0
    while budget.take(now):
        count += 1
    return count


def test_the_floor_is_there_without_any_request() -> None:
    assert taken(RetryBudget(floor=2, share=0), 100.0) == 20


def test_requests_earn_their_share() -> None:
    budget = RetryBudget(floor=0, share=0.2)
    for step in range(50):
        budget.note_request(100.0 + step / 10)
    assert taken(budget, 105.0) == 10
    assert taken(budget, 105.0) == 0


def test_what_happened_before_the_window_does_not_count() -> None:
    budget = RetryBudget(floor=1, share=1.0)
    for _ in range(100):
        budget.note_request(100.0)
    assert taken(budget, 100.0) == 110
    assert taken(budget, 100.0 + WINDOW - 0.5) == 0
    assert taken(budget, 102.0 + WINDOW) == 10


def test_a_budget_of_nothing_gives_nothing() -> None:
    budget = RetryBudget(floor=0, share=0)
    budget.note_request(5.0)
    assert not budget.take(5.0)


def test_long_use_keeps_no_more_than_the_window() -> None:
    budget = RetryBudget(floor=0, share=0.5)
    for second in range(1000):
        budget.note_request(float(second))
        budget.take(float(second))
    assert taken(budget, 999.0) <= 1
