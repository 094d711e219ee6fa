"""Connections to replicas: counted, limited, used again, and never lost."""

import asyncio
import os
import resource
import socket
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest
import pytest_asyncio

from replicarouter.errors import ConnectFailed, Overloaded, QueueTimeout
from replicarouter.fleet.ledger import Ledger
from replicarouter.proxy.upstream import JOINED_BODY, Link, Upstream
from tests.fakes.client import HOST
from tests.fakes.replica import OK, FakeReplica, silence
from tests.fakes.wire import eventually
from tests.proxy.rig import HEAD, joined, upstream_for
from tests.scene import an_exchange


class Answered:
    """A receiver that waits for a whole answer."""

    def __init__(self) -> None:
        self.data = b""
        self.ended = False

    def feed(self, data: bytes) -> None:
        self.data += data

    def lost(self, error: BaseException | None) -> None:
        self.ended = True


class Site:
    """A replica that listens, and what the ledger says of the connections to it."""

    def __init__(self, fake: FakeReplica) -> None:
        self.fake = fake
        self.ledger = Ledger()
        self.replica = joined(self.ledger, fake)
        self.made: list[Upstream] = []

    def upstream(self, **limits: float) -> Upstream:
        self.made.append(upstream_for(self.ledger, **limits))  # type: ignore[arg-type]
        return self.made[-1]

    async def open(self, upstream: Upstream) -> Link:
        return await upstream.open(self.replica, an_exchange())

    @property
    def connections(self) -> tuple[int, int]:
        counts = self.ledger.connections_of(self.replica.row)
        return counts.open, counts.busy


@pytest_asyncio.fixture
async def site() -> AsyncIterator[Site]:
    """Afterwards nothing is open, busy or waiting."""
    async with FakeReplica() as fake:
        one = Site(fake)
        yield one
        for upstream in one.made:
            await upstream.close()
        await eventually(lambda: one.connections == (0, 0), "all connections are closed")
        assert one.ledger.waiting_for_slot == 0


async def ask(link: Link, body: bytes = b"{}") -> bytes:
    answered = Answered()
    link.send(answered, HEAD.replace(b": 2", b": %d" % len(body)), body)
    await eventually(lambda: answered.data.endswith(OK) or answered.ended, "an answer")
    return answered.data


async def test_a_connection_is_busy_while_it_is_used_and_idle_afterwards(site: Site) -> None:
    link = await site.open(site.upstream())
    assert site.connections == (1, 1)
    assert await ask(link) == OK

    link.end(reusable=True)
    assert site.connections == (1, 0)


async def test_an_idle_connection_is_used_again_and_counted_once(site: Site) -> None:
    upstream = site.upstream()
    for reused in (False, True, True):
        link = await site.open(upstream)
        assert link.reused is reused
        await ask(link)
        link.end(reusable=True)

    assert site.connections == (1, 0)


async def test_a_connection_that_is_not_reusable_is_closed(site: Site) -> None:
    link = await site.open(site.upstream())
    await ask(link)
    link.end(reusable=False)
    await eventually(lambda: site.connections == (0, 0), "it is closed")


async def test_ending_twice_is_ending_once(site: Site) -> None:
    upstream = site.upstream(limit=1)
    link = await site.open(upstream)
    await ask(link)
    link.end(reusable=True)
    link.end(reusable=False)

    assert site.connections == (1, 0)
    (await site.open(upstream)).end(reusable=False)


async def test_a_connection_whose_request_is_still_being_written_is_closed(site: Site) -> None:
    site.fake.script = silence
    site.fake.read_bodies = False
    link = await site.open(site.upstream())
    await eventually(lambda: site.fake.connections, "it is connected")
    site.fake.connections[0].wire.pause()
    link.send(Answered(), HEAD, b"x" * (32 << 20))
    link.end(reusable=True)
    await eventually(lambda: site.connections == (0, 0), "it is closed")


async def test_a_connection_that_the_replica_closes_is_no_longer_open(site: Site) -> None:
    upstream = site.upstream()
    link = await site.open(upstream)
    await ask(link)
    link.end(reusable=True)
    site.fake.connections[0].wire.close()
    await eventually(lambda: site.connections == (0, 0), "it is closed")

    again = await site.open(upstream)
    assert not again.reused
    again.end(reusable=False)


@pytest.mark.parametrize("size", [0, JOINED_BODY, JOINED_BODY + 1, 1_000_000])
async def test_head_and_body_arrive_whole_whether_joined_or_not(site: Site, size: int) -> None:
    link = await site.open(site.upstream())
    body = b"x" * size
    await ask(link, body)
    (received,) = await site.fake.received()
    link.end(reusable=True)

    assert received.body == body


async def test_a_receiver_hears_of_a_connection_that_has_ended_before_it_is_written(site: Site) -> None:
    link = await site.open(site.upstream())
    link.protocol.abort()
    answered = Answered()
    link.send(answered, HEAD, b"{}")
    assert answered.ended
    link.end(reusable=True)


# Failures


async def test_a_refused_connection_is_no_loss_of_a_slot(site: Site) -> None:
    upstream = site.upstream(limit=1)
    await site.fake.refuse()
    for _ in range(3):
        with pytest.raises(ConnectFailed):
            await site.open(upstream)
    assert site.connections == (0, 0)


async def test_a_connection_that_does_not_come_about_is_given_up(site: Site) -> None:
    await site.fake.stop_answering_connects()
    with pytest.raises(ConnectFailed):
        await site.open(site.upstream(timeout=0.1))
    assert site.connections == (0, 0)


async def test_a_host_that_does_not_exist_cannot_be_reached() -> None:
    ledger = Ledger()
    upstream = upstream_for(ledger, limit=1)
    fake = FakeReplica()
    unknown = joined(ledger, fake, url="http://a..b:8000")
    for _ in range(2):
        with pytest.raises(ConnectFailed):
            await upstream.open(unknown, an_exchange())
    await upstream.close()
    await fake.stop()


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Let every further attempt to open something fail."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


async def test_a_router_without_descriptors_is_overloaded_and_the_replica_is_not_to_blame(site: Site) -> None:
    upstream = site.upstream(limit=1)
    with no_descriptor_left(), pytest.raises(Overloaded):
        await site.open(upstream)

    link = await site.open(upstream)
    link.end(reusable=False)


async def test_counts_settle_when_every_connection_is_reset_as_it_comes(site: Site) -> None:
    loop = asyncio.get_running_loop()
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        listener.listen(64)
        listener.setblocking(False)

        async def reset_all() -> None:
            while True:
                peer, _ = await loop.sock_accept(listener)
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                peer.close()

        resetting = asyncio.ensure_future(reset_all())
        port = listener.getsockname()[1]
        site.replica = joined(site.ledger, site.fake, url=f"http://{HOST}:{port}", name="resetting")
        upstream = site.upstream(limit=8)

        async def one() -> None:
            try:
                link = await site.open(upstream)
            except ConnectFailed:
                return
            answered = Answered()
            link.send(answered, HEAD, b"{}")
            await eventually(lambda: answered.ended, "it ends")
            link.end(reusable=False)

        await asyncio.gather(*(one() for _ in range(200)))
        resetting.cancel()
        await asyncio.wait([resetting])
    await eventually(lambda: site.connections == (0, 0), "all counts are at zero")


# Limits


async def test_the_limit_is_the_most_connections_at_a_time(site: Site) -> None:
    upstream = site.upstream(limit=2)
    links = [await site.open(upstream), await site.open(upstream)]
    third = asyncio.ensure_future(site.open(upstream))
    await eventually(lambda: site.ledger.waiting_for_slot == 1, "the third waits")
    links.pop().end(reusable=False)
    links.append(await third)

    assert site.connections[1] == 2
    for link in links:
        link.end(reusable=False)


async def test_a_wait_for_a_slot_is_bounded(site: Site) -> None:
    upstream = site.upstream(limit=1, timeout=0.1)
    link = await site.open(upstream)
    with pytest.raises(QueueTimeout):
        await site.open(upstream)
    link.end(reusable=False)


@pytest.mark.parametrize("turns", range(6))
async def test_no_slot_is_lost_when_an_opening_is_cancelled(site: Site, turns: int) -> None:
    upstream = site.upstream(limit=1)
    opening = asyncio.ensure_future(site.open(upstream))
    for _ in range(turns):
        await asyncio.sleep(0)
    opening.cancel()
    await asyncio.wait([opening])
    if not opening.cancelled():
        opening.result().end(reusable=False)

    (await asyncio.wait_for(site.open(upstream), 5)).end(reusable=False)


async def test_two_replicas_at_one_address_have_a_limit_each(site: Site) -> None:
    upstream = site.upstream(each=1)
    url = site.fake.settings["url"]
    other = joined(site.ledger, site.fake, url=f"{url}/other", name="other")
    link = await site.open(upstream)
    try:
        second = await asyncio.wait_for(upstream.open(other, an_exchange()), 0.3)
        second.end(reusable=False)
    finally:
        link.end(reusable=False)


# What is the same for every request


async def test_an_address_is_made_once(site: Site) -> None:
    upstream = site.upstream()
    assert upstream.address(site.replica) is upstream.address(site.replica)


@pytest.mark.parametrize(
    ("options", "base_path", "lines", "replaces"),
    [
        ({"url": "http://h:8001"}, "", b"Host: h:8001\r\n", False),
        ({"url": "http://h/base/"}, "/base", b"Host: h\r\n", False),
        ({"url": "http://[::1]:8001"}, "", b"Host: [::1]:8001\r\n", False),
        (
            {"url": "http://h", "api_key": "key"},
            "",
            b"Host: h\r\nAuthorization: Bearer key\r\n",
            True,
        ),
    ],
)
async def test_an_address_is_host_path_and_key(
    site: Site, options: dict[str, str], base_path: str, lines: bytes, replaces: bool
) -> None:
    address = site.upstream().address(joined(site.ledger, site.fake, **{"name": "x", **options}))

    assert (address.base_path, address.own_lines) == (base_path, lines)
    assert address.replaces_credentials is replaces
