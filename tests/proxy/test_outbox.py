"""Writes that are kept for a part of a turn: in order, none lost, none later than it may be."""

import asyncio

from replicarouter.proxy.outbox import MOST, Outbox


class Paper:
    """Notes what happens, in its order."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.lines.append(data)

    def fail(self, data: bytes) -> None:
        raise RuntimeError(data)


def an_outbox(*coming: str) -> Outbox:
    return Outbox(asyncio.get_running_loop(), set(coming))


async def test_what_is_added_is_written_before_anybody_runs_who_is_woken_later() -> None:
    paper, outbox = Paper(), an_outbox()
    outbox.add(paper.write, b"first")
    asyncio.get_running_loop().call_soon(paper.write, b"woken")
    outbox.add(paper.write, b"second")
    assert paper.lines == []
    await asyncio.sleep(0)
    assert paper.lines == [b"first", b"second", b"woken"]


async def test_no_more_than_so_many_are_kept() -> None:
    paper, outbox = Paper(), an_outbox()
    expected = [b"%d" % number for number in range(MOST + 1)]
    for data in expected[:MOST]:
        assert paper.lines == []
        outbox.add(paper.write, data)
    assert paper.lines == expected[:MOST]
    outbox.add(paper.write, expected[MOST])
    assert paper.lines == expected[:MOST]
    await asyncio.sleep(0)
    assert paper.lines == expected


async def test_who_comes_alone_does_not_wait() -> None:
    paper, outbox = Paper(), an_outbox()
    outbox.add_in_turn(paper.write, b"alone")
    assert paper.lines == [b"alone"]


async def test_the_last_of_those_that_are_coming_has_all_written() -> None:
    paper, coming = Paper(), {"second", "third"}
    outbox = Outbox(asyncio.get_running_loop(), coming)
    outbox.add_in_turn(paper.write, b"first")
    coming.discard("second")
    outbox.add_in_turn(paper.write, b"second")
    coming.discard("third")
    assert paper.lines == []
    outbox.add_in_turn(paper.write, b"third")
    assert paper.lines == [b"first", b"second", b"third"]
    await asyncio.sleep(0)
    assert len(paper.lines) == 3


async def test_nobody_waits_longer_for_one_who_has_nothing_to_write() -> None:
    paper, outbox = Paper(), an_outbox("nothing to say")
    outbox.add_in_turn(paper.write, b"first")
    assert paper.lines == []
    await asyncio.sleep(0)
    assert paper.lines == [b"first"]


async def test_one_that_cannot_be_written_costs_no_other() -> None:
    paper, outbox = Paper(), an_outbox()
    for write in (paper.fail, paper.write):
        outbox.add(write, b"data")
    outbox.flush()
    assert paper.lines == [b"data"]


async def test_what_is_added_meanwhile_is_written_too() -> None:
    paper, outbox = Paper(), an_outbox()

    def write_on(data: bytes) -> None:
        paper.write(data)
        outbox.add(paper.write, b"more")

    outbox.add(write_on, b"some")
    outbox.flush()
    await asyncio.sleep(0)
    assert paper.lines == [b"some", b"more"]
