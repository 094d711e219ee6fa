"""One attempt from a real client through the data plane to a scripted replica, and what came of it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from replicarouter.admission.fairness import Book
from replicarouter.admission.lease import Lease
from replicarouter.errors import RouterError
from replicarouter.exchange import Exchange
from replicarouter.fleet.ledger import Ledger
from replicarouter.fleet.registry import Pool
from replicarouter.fleet.replica import Replica
from replicarouter.protocol.endpoints import Body as BodyKind
from replicarouter.protocol.endpoints import Endpoint
from replicarouter.protocol.request import InferenceRequest
from replicarouter.proxy.aiohttp_connector import Connector
from replicarouter.proxy.aiohttp_internals import InboundRequest
from replicarouter.proxy.answers import end_broken
from replicarouter.proxy.attempt import Attempt, Terms
from replicarouter.proxy.body import Body
from replicarouter.proxy.caller import Caller
from replicarouter.proxy.errand import Declined, Errand
from replicarouter.proxy.relay import ClientLeft
from replicarouter.proxy.slots import Slots
from replicarouter.proxy.upstream import Link, Upstream
from replicarouter.settings import ReplicaSettings
from replicarouter.telemetry.metrics import Metrics
from tests.fakes.client import Client
from tests.fakes.replica import FakeReplica
from tests.proxy.conftest import Front, StartFront
from tests.scene import an_exchange

CHAT = Endpoint("/v1/chat/completions", {"POST": BodyKind.JSON})
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: replica\r\nContent-Length: 2\r\n\r\n"


def upstream_for(ledger: Ledger, *, limit: int = 0, each: int = 0, timeout: float = 5.0) -> Upstream:
    """Connections as the router opens them."""
    loop = asyncio.get_running_loop()
    slots = Slots(limit=limit, limit_per_replica=each, timeout=timeout, ledger=ledger, clock=loop.time)
    connector = Connector(limit=limit, limit_per_host=0, keepalive_timeout=30)
    return Upstream(connector, slots, ledger, connect_timeout=timeout)


def joined(ledger: Ledger, fake: FakeReplica, **options: Any) -> Replica:
    """The router's view of a scripted replica."""
    return Replica.join(ReplicaSettings.model_validate({**fake.settings, **options}), ledger, 0)


@dataclass(slots=True, eq=False)
class Rig:
    """A handler that makes one attempt for each request; `error` is how the last one failed. `meanwhile` is
    called between the opening of its connection and the attempt."""

    replica: Replica
    upstream: Upstream
    ledger: Ledger
    terms: Terms
    messages_api: bool = False
    declines: bool = False
    meanwhile: Callable[["Rig", Link], None] = lambda *_: None
    declined: Declined | None = None
    exchanges: list[Exchange] = field(default_factory=list)
    callers: list[Caller] = field(default_factory=list)
    error: BaseException | None = None
    front: Front | None = None

    async def handle(self, request: InboundRequest) -> bool:
        now = self.terms.clock()
        exchange = an_exchange(accepted_at=now, model="m1", replica="a", received_at=now, leased_at=now)
        caller = Caller(request.client, request.modern, request.modern and not request.message.should_close)
        self.exchanges.append(exchange)
        self.callers.append(caller)
        lease = Lease(self.ledger, self.replica, exchange, Book({}).account("client"))
        try:
            link = await self.upstream.open(self.replica, exchange)
            errand = Errand(
                InferenceRequest(CHAT, "m1"), Pool("m1"), request.heading, Body(b"{}", 2), caller, exchange
            )
            self.meanwhile(self, link)
            await Attempt(link, lease, errand, self.terms, lambda *_: self.declines).run(HEAD)
        except Declined as declined:
            self.declined = declined
            return False
        except RouterError as error:
            self.error = error
            if caller.relay is not None:
                end_broken(caller.connection, caller.relay, error, messages_api=self.messages_api)
            return False
        except (ClientLeft, asyncio.CancelledError) as error:
            self.error = error
            raise
        finally:
            lease.end()
        return caller.keep_alive

    async def connect(self, *, receive_buffer: int | None = None) -> Client:
        assert self.front is not None
        return await self.front.connect(receive_buffer=receive_buffer)

    @property
    def exchange(self) -> Exchange:
        return self.exchanges[-1]

    @property
    def connections(self) -> tuple[int, int]:
        """Open and busy connections to the replica."""
        counts = self.ledger.connections_of(self.replica.row)
        return counts.open, counts.busy


@asynccontextmanager
async def a_rig(fake: FakeReplica, start_front: StartFront, **terms_given: float) -> AsyncIterator[Rig]:
    """The rig in front of a replica that listens; afterwards nothing is left counted."""
    ledger = Ledger()
    terms = Terms(
        clock=asyncio.get_running_loop().time,
        timings=Metrics(),
        expose_replica=True,
        **{"response_head": 0.0, "idle": 0.0, "stale_window": 0.05, "sse_keepalive": 0.0, **terms_given},
    )
    rig = Rig(joined(ledger, fake), upstream_for(ledger), ledger, terms)
    rig.front = await start_front(rig.handle)
    try:
        yield rig
    finally:
        for client in rig.front.clients:
            await client.closed()
        await rig.front.server.shutdown(1.0)
        await rig.upstream.close()
    assert list(ledger.cells) == [0] * len(ledger.cells)
    assert rig.connections == (0, 0)
