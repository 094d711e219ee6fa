"""A pool of replicas under one policy, and the choices it makes."""

from collections.abc import Callable, Sequence
from random import Random

import pytest

from replicarouter.fleet.replica import Replica
from replicarouter.policies.base import Policy, View
from tests.scene import a_request

Choose = Callable[..., list[str]]


@pytest.fixture
def choose() -> Choose:
    """Let a policy choose `count` times among candidates; the names it chose."""

    def names(
        policy: Policy, candidates: Sequence[Replica], count: int = 1, *, now: float = 1000.0, seed: int = 7
    ) -> list[str]:
        random = Random(seed)
        chosen = [policy.pick(a_request(), View(candidates, candidates, now, random)) for _ in range(count)]
        return [one.name for one in chosen if isinstance(one, Replica)]

    return names
