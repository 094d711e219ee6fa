"""A memory for two workers, and what is forked around it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from replicarouter.commons.memory import Commons
from tests.commons.children import Child

Fork = Callable[..., Child]


@pytest.fixture
def commons() -> Iterator[Commons]:
    made = Commons(2)
    yield made
    made.close()


@pytest.fixture
def fork() -> Iterator[Fork]:
    """Run a function in a child; those that are left over are ended."""
    children: list[Child] = []

    def start(work: Callable[..., Any], *args: Any) -> Child:
        child = Child(work, *args)
        children.append(child)
        return child

    yield start
    for child in children:
        if not child.ended:
            child.kill()
