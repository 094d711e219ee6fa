"""Whether another attempt may follow."""

import pytest

from replicarouter.errors import (
    BadReplicaResponse,
    ConnectFailed,
    IdleTimeout,
    InternalError,
    Overloaded,
    QueueTimeout,
    ReplicaDisconnected,
    ResponseHeadTimeout,
    RouterError,
    TotalTimeout,
)
from replicarouter.proxy.retry import may_retry

NEVER = [
    *(ReplicaDisconnected, BadReplicaResponse, ResponseHeadTimeout, IdleTimeout, TotalTimeout),
    *(Overloaded, QueueTimeout, InternalError),
]


@pytest.mark.parametrize(("attempts", "allowed"), [(1, True), (2, True), (3, False), (4, False)])
def test_a_request_that_no_replica_saw_is_tried_again_up_to_the_limit(attempts: int, allowed: bool) -> None:
    assert may_retry(ConnectFailed("refused"), attempts, most=3) is allowed


def test_one_attempt_is_no_retry() -> None:
    assert not may_retry(ConnectFailed("refused"), 1, most=1)


@pytest.mark.parametrize("error", NEVER)
def test_what_an_engine_may_be_working_on_is_not_tried_again(error: type[RouterError]) -> None:
    assert not may_retry(error("x"), 1, most=3)
