"""Requests that wait, made by hand."""

import asyncio
import itertools
from collections.abc import Callable

import pytest

from replicarouter.admission.fairness import Book
from replicarouter.admission.queue import Waiter
from replicarouter.fleet.registry import Pool
from replicarouter.fleet.replica import Replica
from tests.scene import a_request, an_exchange

MakeWaiter = Callable[..., Waiter]


@pytest.fixture
def book() -> Book:
    return Book({"double": 2.0, "triple": 3.0, "tenth": 0.1})


@pytest.fixture
async def a_waiter(book: Book) -> MakeWaiter:
    """Make a request of a caller that waits for a pool; numbered in order of their making."""
    serials = itertools.count(1)
    loop = asyncio.get_running_loop()
    own_book = book

    def make(
        caller: str = "a",
        pool: Pool | None = None,
        *,
        rank: int = 0,
        tried: tuple[Replica, ...] = (),
        book: Book | None = None,
    ) -> Waiter:
        pool = pool or Pool("m1")
        exchange = an_exchange(caller=caller, priority=rank)
        account = (book or own_book).account(caller)
        return Waiter(
            next(serials), a_request(pool.model), pool, exchange, tried, loop.create_future(), account
        )

    return make
