"""Who counts and logs hears of every exchange that has ended: once, in order, and in time."""

import asyncio

import pytest

from replicarouter.exchange import OK, UPSTREAM_ERROR, Exchange
from replicarouter.telemetry.ended import Ended
from tests.scene import an_exchange


class Book:
    """Notes the names of what it is told of."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def note(self, exchange: Exchange) -> None:
        self.names.append(exchange.client_id)


def ended(name: str, outcome: str = OK) -> Exchange:
    exchange = an_exchange(outcome=outcome)
    exchange.client_id = name
    return exchange


async def test_they_hear_of_all_before_anybody_runs_who_is_woken_later() -> None:
    book, loop = Book(), asyncio.get_running_loop()
    told = Ended(loop, [book.note], [book.note])
    told.add(ended("first"))
    loop.call_soon(book.names.append, "woken")
    told.add(ended("second"))
    assert book.names == []
    await asyncio.sleep(0)
    assert book.names == ["first", "second", "woken"]
    told.add(ended("third"))
    await asyncio.sleep(0)
    assert book.names == ["first", "second", "woken", "third"]


async def test_not_everybody_hears_of_what_went_well() -> None:
    everybody, of_success = Book(), Book()
    told = Ended(asyncio.get_running_loop(), [everybody.note, of_success.note], [of_success.note])
    told.add(ended("good"))
    told.add(ended("bad", UPSTREAM_ERROR))
    told.tell()
    assert everybody.names == ["bad"]
    assert of_success.names == ["good", "bad"]
    await asyncio.sleep(0)
    assert of_success.names == ["good", "bad"]


async def test_one_who_fails_costs_no_other_and_no_exchange(caplog: pytest.LogCaptureFixture) -> None:
    def fail(exchange: Exchange) -> None:
        raise ValueError(exchange.client_id)

    book = Book()
    told = Ended(asyncio.get_running_loop(), [fail, book.note], [fail, book.note])
    told.add(ended("first"))
    told.add(ended("second"))
    told.tell()
    assert book.names == ["first", "second"]
    assert [record.message for record in caplog.records] == ["internal error"] * 2
