"""A body that is passed on while it arrives: read no faster than its replica takes it."""

import asyncio
from functools import partial
from typing import ClassVar, Literal, NoReturn

from replicarouter.clock import Clock
from replicarouter.errors import Overloaded
from replicarouter.exchange import Exchange
from replicarouter.protocol.alias import patched
from replicarouter.protocol.form import ModelField
from replicarouter.protocol.framing import chunk
from replicarouter.protocol.headers import UNKNOWN
from replicarouter.protocol.json_scan import Span
from replicarouter.proxy.arriving import Arriving
from replicarouter.proxy.hung_up import hung_up
from replicarouter.proxy.memory import BodyMemory
from replicarouter.proxy.spool import Spool
from replicarouter.proxy.upstream import Link

REPEATABLE = 131072
"""Bytes up to which an upload that has begun can be begun again."""

LOOK_FOR_CLIENT = 0.5
"""Seconds between two looks whether a client that nothing is read from is still there."""


class Upload:
    """What `Body` is for a body in memory. What has come before it could be sent on is spooled.

    `sent` says that all of it has gone to the replica, and `replayable` that it could all be sent again.
    """

    streams: ClassVar[Literal[True]] = True
    data: ClassVar[bytes] = b""

    __slots__ = (
        "_arriving",
        "_clock",
        "_dropped",
        "_exchange",
        "_most_kept",
        "_patch",
        "_scope",
        "_spool",
        "_watch",
        "sent",
    )

    def __init__(
        self,
        arriving: Arriving,
        memory: BodyMemory,
        exchange: Exchange,
        clock: Clock,
        *,
        most_kept: int = REPEATABLE,
    ) -> None:
        arriving.request.read_sparingly()
        self._most_kept = most_kept
        self._arriving = arriving
        self._spool = Spool(memory)
        self._exchange = exchange
        self._clock = clock
        self._scope: asyncio.Timeout | None = None
        self._patch: tuple[Span, bytes] | None = None
        self._dropped = False
        self._watch: asyncio.TimerHandle | None = None
        self.sent = False

    @property
    def length(self) -> int:
        """Its bytes: as declared or as counted, `UNKNOWN` while it is chunked and still arriving."""
        arriving = self._arriving
        if arriving.declared is None and not arriving.ended:
            return UNKNOWN
        length = arriving.received if arriving.declared is None else arriving.declared
        if self._patch is not None:
            (start, end), value = self._patch
            length += len(value) - (end - start)
        return length

    @property
    def replayable(self) -> bool:
        """Whether everything that was read is still there."""
        return not self._dropped and self._spool.size == self._arriving.received

    def begin(self, data: bytes, held: int) -> None:
        """Start with what has come of it, for which `held` bytes of memory were taken already."""
        self._spool.begin(data, held)
        self._exchange.bytes_in = self._arriving.received

    def claim(self) -> bool:
        """Whether it can all be sent again; what is kept for that does not give way until it was."""
        self._spool.reclaim()
        return self.replayable

    async def find_model(self) -> ModelField:
        """Spool what comes until it has named the form's model, or cannot any more.

        Raises what `Arriving.read` raises, and `Overloaded`.
        """
        field = ModelField()
        while not field.over and not self._arriving.ended:
            data = await self._read()
            field.feed(data)
            await self._spool.add(data)
        return field

    def put(self, span: Span, value: bytes) -> None:
        """Send `value` in place of what stands at `span`, which has come already."""
        self._patch = span, value

    async def pump(self, link: Link, done: "asyncio.Future[None]") -> None:
        """Send all of it, from the beginning; ends early when `done` is, or `stop` is called.

        Raises what `Arriving.read` raises, and `Overloaded`: the replica must then see a broken end.
        """
        self.sent = False
        if done.done():
            return
        scope = asyncio.timeout(None)
        stop = partial(self._stop_only, scope)
        try:
            async with scope:
                self._scope = scope
                done.add_done_callback(stop)
                try:
                    await self._send(link)
                finally:
                    done.remove_done_callback(stop)
                    self._scope = None
        except TimeoutError:
            if not scope.expired():
                raise
        finally:
            if self._dropped:
                self._let_go()

    def stop(self) -> None:
        """Send no more of it: its replica has answered without it."""
        scope, self._scope = self._scope, None
        if scope is not None:
            scope.reschedule(0)

    def drop(self) -> None:
        """Let go of what would only be needed to send it again."""
        self._dropped = True
        if self._scope is None:
            self._let_go()

    def watch_client(self) -> None:
        """Look for the client from now on, until it is dropped: nothing is read from a client that has to
        wait."""
        self._watch = asyncio.get_running_loop().call_later(LOOK_FOR_CLIENT, self._look_again)

    def _look_again(self) -> None:
        self._look_for_client()
        self.watch_client()

    def _let_go(self) -> None:
        self._spool.drop()
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _stop_only(self, scope: asyncio.Timeout, _: "asyncio.Future[None]") -> None:
        """An attempt is over: stop its own sending, not that of the next one, which may have begun."""
        if self._scope is scope:
            self.stop()

    async def _send(self, link: Link) -> None:
        chunked = self.length == UNKNOWN
        spool, arriving = self._spool, self._arriving
        spool.reclaim()
        if spool.size != arriving.received:
            raise Overloaded("What was kept of the request's body had to give way; send it again.")
        number = at = 0
        while piece := await spool.piece(number):
            data = piece if self._patch is None else patched(piece, at, *self._patch)
            if data:
                await self._put(link, data, chunked=chunked)
            number += 1
            at += len(piece)
        while spool.on_disk and not arriving.ended:
            data = await self._await_client()
            if data:
                await self._keep(data)
                await self._put(link, data, chunked=chunked)
        spool.lend()
        if not arriving.ended:
            await self._pour(link, chunked=chunked)
        if chunked:
            await self._put(link, b"", chunked=True)
        self.sent = True

    async def _pour(self, link: Link, *, chunked: bool) -> None:
        """Send what comes as soon as it does. The client is not read while the replica takes nothing."""
        arriving, exchange, protocol = self._arriving, self._exchange, link.protocol
        lost = False

        def give(data: bytes) -> None:
            nonlocal lost
            exchange.bytes_in = arriving.received
            self._keep_in_memory(data)
            transport = link.transport
            if transport is None or transport.is_closing():
                lost = True
                arriving.pause()
                return
            transport.write(chunk(data) if chunked else data)
            if protocol.writing_paused:
                arriving.pause()
                exchange.held = False
                protocol.on_writable = go_on

        def go_on() -> None:
            protocol.on_writable = None
            exchange.held = True
            arriving.resume()

        exchange.held = True
        try:
            await arriving.pour(give)
        finally:
            protocol.on_writable = None
            exchange.held = False
        exchange.uploaded_at = self._clock()
        if lost:
            await _stopping()
        await self._drain(link)

    async def _put(self, link: Link, data: bytes, *, chunked: bool) -> None:
        """Write to the replica, and wait until it has taken enough to be given more."""
        transport = link.transport
        if transport is None or transport.is_closing():
            await _stopping()
        transport.write(chunk(data) if chunked else data)
        await self._drain(link)

    async def _drain(self, link: Link) -> None:
        """Wait until the replica has taken enough to be given more."""
        while link.protocol.writing_paused:
            writable = asyncio.get_running_loop().create_future()
            link.protocol.on_writable = partial(_resolve, writable)
            try:
                async with asyncio.timeout(LOOK_FOR_CLIENT):
                    await writable
            except TimeoutError:
                self._look_for_client()
            finally:
                link.protocol.on_writable = None

    def _look_for_client(self) -> None:
        """End the request of a client that has left: while nothing is read, nobody else notices."""
        transport = self._arriving.request.client.transport
        if transport is not None and not transport.is_closing() and hung_up(transport):
            transport.abort()

    async def _await_client(self) -> bytes:
        """Read on; meanwhile the replica's silence is not its own fault."""
        self._exchange.held = True
        try:
            return await self._read()
        finally:
            self._exchange.held = False

    async def _read(self) -> bytes:
        data = await self._arriving.read()
        self._exchange.bytes_in = self._arriving.received
        if self._arriving.ended:
            self._exchange.uploaded_at = self._clock()
        return data

    async def _keep(self, data: bytes) -> None:
        """Keep what has just been read while all before it is there and it costs little."""
        if not self._spool.on_disk:
            self._keep_in_memory(data)
        elif not self._dropped and self._spool.size + len(data) == self._arriving.received:
            try:
                await self._spool.add(data)
            except Overloaded:
                self._spool.drop()

    def _keep_in_memory(self, data: bytes) -> None:
        """The same for what is not on disk."""
        spool = self._spool
        if self._dropped or spool.size + len(data) != self._arriving.received:
            return
        if spool.size + len(data) > self._most_kept or not spool.spare(data):
            spool.drop()
        elif spool.size == len(data):
            spool.lend()


async def _stopping() -> NoReturn:
    """The connection to the replica has ended: the attempt hears of it, and stops its upload."""
    while True:
        await asyncio.get_running_loop().create_future()


def _resolve(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
