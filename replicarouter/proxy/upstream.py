"""Connections to replicas: opened under the explicit limit, counted, pooled, dropped."""

import asyncio
import errno
import logging
from dataclasses import dataclass
from urllib.parse import urlsplit

import aiohttp
from aiohttp.client_reqrep import ClientRequest, ConnectionKey

from replicarouter.clock import Seldom
from replicarouter.errors import ConnectFailed, Overloaded
from replicarouter.exchange import Exchange
from replicarouter.fleet.ledger import Connections, Ledger
from replicarouter.fleet.registry import FleetListener
from replicarouter.fleet.replica import Replica
from replicarouter.proxy.aiohttp_connector import Connector, Pooled, Receiver
from replicarouter.proxy.slots import Slots
from replicarouter.proxy.straight import write
from replicarouter.tls import tls_failure

log = logging.getLogger(__name__)

JOINED_BODY = 65536
"""Bytes up to which copying a body behind its head is cheaper than a system call of its own."""

_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


@dataclass(frozen=True, slots=True)
class Address:
    """What is the same for every request to one replica."""

    template: ClientRequest
    key: ConnectionKey
    base_path: str
    own_lines: bytes
    replaces_credentials: bool


class Link:
    """One connection in use by one request after the other; `end` ends a use, once."""

    __slots__ = ("_busy", "_counts", "_opened_in", "_pooled", "_row", "_slots", "protocol", "reused")

    def __init__(self, pooled: Pooled, counts: Connections, slots: Slots) -> None:
        self._pooled = pooled
        self._slots = slots
        self._opened_in = self._counts = counts
        self._row = 0
        self._busy = False
        self.protocol = pooled.protocol
        self.reused = False
        counts.open += 1
        self.protocol.on_closed = self._closed

    def begin(self, row: int, counts: Connections) -> None:
        """A request uses it, for the replica that owns `row`."""
        self._row, self._counts = row, counts
        self._busy = True
        counts.busy += 1

    def send(self, receiver: Receiver, head: bytes, body: bytes) -> None:
        """Write a whole request; its answer goes to `receiver`."""
        protocol = self.protocol
        transport = protocol.transport
        if transport is None:
            # Closed between the pool's check and now: the receiver hears of it like of any other end.
            receiver.lost(None)
            return
        protocol.receiver = receiver
        if len(body) <= JOINED_BODY:
            write(transport, protocol.straight(), head + body)
        else:
            transport.write(head)
            transport.write(body)

    @property
    def transport(self) -> asyncio.Transport | None:
        """The transport while the connection is open."""
        return self.protocol.transport

    def end(self, *, reusable: bool) -> None:
        """Give the connection back to the pool, or close it at once."""
        if not self._busy:
            return
        self._busy = False
        self.reused = True
        protocol = self.protocol
        protocol.receiver = None
        self._counts.busy -= 1
        transport = protocol.transport
        if reusable and transport is not None and not transport.get_write_buffer_size():
            self._pooled.release()
        else:
            self._pooled.close()
        self._slots.give_back(self._row)

    def _closed(self) -> None:
        # The replica may have left since, and another one have its row.
        self._opened_in.open -= 1


class Upstream(FleetListener):
    """Opens links. Must be made on the running loop; `close` it in the end."""

    def __init__(self, connector: Connector, slots: Slots, ledger: Ledger, *, connect_timeout: float) -> None:
        self._connector = connector
        self._slots = slots
        self._ledger = ledger
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout or None)
        self._addresses: dict[Replica, Address] = {}
        self._scarce = Seldom()

    @property
    def limit(self) -> int:
        """Most connections in all, 0 for no limit."""
        return self._slots.limit

    def address(self, replica: Replica) -> Address:
        """The fixed parts of requests to `replica`."""
        address = self._addresses.get(replica)
        if address is None:
            address = self._addresses[replica] = self._make_address(replica)
        return address

    def take(self, replica: Replica, *, waited: bool = False) -> Link | None:
        """A connection to `replica` if one is idle in the pool and there is a slot for it now. `waited`: for
        the end of another request, which may have had this connection."""
        row = replica.row
        if not self._slots.take_now(row):
            return None
        pooled = self._connector.take_idle(self.address(replica).key, wary=waited)
        if pooled is None:
            self._slots.give_back(row)
            return None
        return self._link(pooled, row)

    async def open(self, replica: Replica, exchange: Exchange, *, fresh: bool = False) -> Link:
        """A connection to `replica`, from the pool if one is idle and a `fresh` one is not asked for.

        Raises `QueueTimeout` (no slot), `ConnectFailed` (the replica never saw the request),
        `Overloaded` (this process has no descriptor left).
        """
        row = replica.row
        if not self._slots.take_now(row):
            await self._slots.wait(row, exchange)
        try:
            address = self.address(replica)
            if fresh:
                self._connector.drop_idle(address.key)
            pooled = self._connector.take_idle(address.key, wary=True)
            if pooled is None:
                pooled = await self._connector.open(address.template, self._timeout)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            self._slots.give_back(row)
            failure = _failure(error)
            if isinstance(failure, Overloaded):
                self._tell_scarce()
            raise failure from error
        except BaseException:
            self._slots.give_back(row)
            raise
        return self._link(pooled, row)

    def reconfigure(self, *, slot_timeout: float) -> None:
        """Let requests wait this many seconds for a slot, 0 for no bound."""
        self._slots.timeout = slot_timeout

    def removed(self, replica: Replica) -> None:
        """Close the idle connections to a replica, and forget what its requests have in common."""
        address = self._addresses.pop(replica, None)
        if address is not None:
            self._connector.drop_idle(address.key)

    async def close(self) -> None:
        """Close all connections."""
        await self._connector.close()

    def _link(self, pooled: Pooled, row: int) -> Link:
        counts = self._ledger.connections_of(row)
        link: Link | None = pooled.link
        if link is None:
            link = pooled.link = Link(pooled, counts, self._slots)
        link.begin(row, counts)
        return link

    def _tell_scarce(self) -> None:
        count = self._scarce.tell(asyncio.get_running_loop().time())
        if count:
            log.warning("out of descriptors, requests refused", extra={"count": count})

    def _make_address(self, replica: Replica) -> Address:
        settings = replica.settings
        parts = urlsplit(settings.url)
        lines = f"Host: {parts.netloc}\r\n"
        if settings.api_key is not None:
            lines += f"Authorization: Bearer {settings.api_key.get_secret_value()}\r\n"
        template = self._connector.template(settings.url)
        return Address(
            template=template,
            key=template.connection_key,
            base_path=parts.path.rstrip("/"),
            own_lines=lines.encode("latin-1"),
            replaces_credentials=settings.api_key is not None,
        )


def _failure(error: BaseException) -> ConnectFailed | Overloaded:
    if isinstance(error, OSError) and error.errno in _OUT_OF_DESCRIPTORS:
        return Overloaded("The router has no file descriptor left for this request; try again.")
    if isinstance(error, aiohttp.ClientSSLError):
        return ConnectFailed(f"The replica chosen for this request cannot be used: {tls_failure(error)}.")
    return ConnectFailed("The replica chosen for this request cannot be reached; try again.")
