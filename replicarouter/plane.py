"""The data plane of one process: from the port that clients connect to, to the connections to replicas."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from replicarouter import __version__
from replicarouter.admission.bell import Bell
from replicarouter.admission.controller import Admission
from replicarouter.admission.decisions import Decisions
from replicarouter.admission.desk import Desks
from replicarouter.admission.grants import QueueRules
from replicarouter.admission.owners import Owners
from replicarouter.briefing import (
    FirstContents,
    attempt_terms,
    corridor_limits,
    handshake_limit,
    key_reader,
    key_terms,
    open_reception,
    parser_options,
    policy_plan,
    retry_rules,
    tracing_rules,
)
from replicarouter.clock import Clock
from replicarouter.errors import Draining
from replicarouter.exchange import OK, Exchange
from replicarouter.fleet.ledger import Ledger
from replicarouter.fleet.registry import Fleet, FleetListener
from replicarouter.fleet.replica import Replica
from replicarouter.protocol.endpoints import Endpoints
from replicarouter.proxy.aiohttp_connector import Connector
from replicarouter.proxy.aiohttp_server import FrontServer
from replicarouter.proxy.common_memory import CommonBodyMemory
from replicarouter.proxy.common_slots import CommonSlots
from replicarouter.proxy.courier import Courier, Roads, Verdicts
from replicarouter.proxy.descriptors import Descriptors
from replicarouter.proxy.entrance import Entrance
from replicarouter.proxy.handler import Corridor, Local, Rooms
from replicarouter.proxy.intake import Intake
from replicarouter.proxy.memory import BodyMemory
from replicarouter.proxy.reception import Reception
from replicarouter.proxy.register import Register
from replicarouter.proxy.retry import RetryBudget
from replicarouter.proxy.slots import Slots
from replicarouter.proxy.upstream import Upstream
from replicarouter.settings import Settings
from replicarouter.telemetry.access_log import AccessLog
from replicarouter.telemetry.departed import Departed
from replicarouter.telemetry.metrics import Metrics
from replicarouter.telemetry.recent import RecentErrors
from replicarouter.telemetry.refusals import Refusals
from replicarouter.tls import ClientTls, ReplicaTls, check_files
from replicarouter.tracing.opening import open_exporter

SPANS_FLUSH = 3.0
"""Seconds for which the last spans are waited for in the end."""

TURNS_TO_TELL = 3
"""Turns of the event loop in which requests that are cut say so to their clients."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the data plane finds: the fleet and the books it writes; `verdicts` hears how attempts end,
    `refused` of replicas that take no connections, `idle` of those whose last request has ended; `local`
    answers what is asked of the router itself, and `aliases` are other names of models. `workers`: processes
    that share the work."""

    fleet: Fleet
    ledger: Ledger
    metrics: Metrics
    verdicts: Verdicts
    refused: Callable[[Replica], None]
    idle: Callable[[Replica], None]
    local: Local
    aliases: dict[str, str]
    clock: Clock = time.monotonic
    workers: int = 1


class Plane:
    """Takes requests of clients to replicas. `open` and `listen` on the running loop, `close` in the end."""

    def __init__(self, settings: Settings, around: Surroundings) -> None:
        self.settings = settings
        self._around = around
        clock = around.clock
        self.decisions = Decisions(settings.policy_options.decisions_per_second)
        self.desks = Desks(policy_plan(settings), around.metrics, self.decisions)
        self.reception: Reception = open_reception(settings)
        self.owners = Owners()
        self.recent = RecentErrors()
        most, seat = settings.max_buffered_bytes, around.ledger.seat
        self._body_memory = BodyMemory(most) if seat is None else CommonBodyMemory(most, seat)
        self._bell: Bell | None = None
        self._client_tls = ClientTls(settings.tls)
        self.replica_tls = ReplicaTls(settings.tls)
        self._access_log = AccessLog(settings.log.sample, time.time)
        self._tracing = tracing_rules(settings)
        self._observers: list[Callable[[Exchange], None]] = [
            around.metrics.observe,
            self.recent.observe,
            self._access_log.observe,
            Refusals().observe,
        ]
        # The others take no interest in what went well.
        self._success_observers = [around.metrics.observe, self._access_log.observe]
        self._exporter = open_exporter(settings.tracing, around.fleet, version=__version__, clock=clock)
        if self._exporter is not None:
            self._observers.append(self._exporter.observe)
            self._success_observers.append(self._exporter.observe)
        self._descriptors = Descriptors.of_process(replicas=len(settings.replicas))
        self._front: FrontServer | None = None
        self._entrance: Entrance | None = None
        self._admission: Admission | None = None
        self._upstream: Upstream | None = None
        self._courier: Courier | None = None
        self._corridor: Corridor | None = None

    @property
    def port(self) -> int:
        """The port clients connect to, 0 before it is open."""
        return self._entrance.port if self._entrance is not None else 0

    @property
    def clients(self) -> int:
        """Open connections of clients."""
        return self._front.in_use if self._front is not None else 0

    @property
    def traces_dropped(self) -> int:
        """Requests whose spans no collector took."""
        return self._exporter.dropped if self._exporter is not None else 0

    @property
    def busy(self) -> bool:
        """Whether some request has no answer yet, or its client has not taken all of it."""
        unwritten = self._front is not None and self._front.unwritten
        return bool(self._around.ledger.in_flight or unwritten)

    def open(self) -> Sequence[FleetListener]:
        """Build all that needs the running loop. Returns who has to know about changes of the fleet, in this
        order."""
        around = self._around
        self.decisions.later = self._access_log.later = asyncio.get_running_loop().call_later
        slots = self._make_slots()
        self._upstream = self._open_upstream(slots)
        self._admission = Admission(
            around.ledger,
            self.desks,
            rules=QueueRules.of(self.settings.admission),
            clock=around.clock,
            random=Random(),
            idle=around.idle,
        )
        if isinstance(slots, CommonSlots):
            self._bell = Bell(slots.seat, [self._admission, slots])
        self._courier = self._make_courier(self._admission, self._upstream)
        self._corridor = self._make_corridor(self._admission, self._courier)
        return self._admission, self._upstream, Departed(around.ledger, around.metrics)

    async def listen(self) -> None:
        """Take clients. Raises `CannotListen`, as when the port is taken."""
        settings, context = self.settings, self._client_tls.context
        assert self._corridor is not None
        self._front = FrontServer(
            self._corridor.handle,
            self._corridor.refuse,
            head_timeout=settings.timeouts.client_head,
            write_timeout=settings.timeouts.client_write,
            options=parser_options(settings),
        )
        self._entrance = Entrance(
            self._front,
            self._descriptors,
            tls=context,
            handshake=handshake_limit(settings) if context is not None else None,
            shared=self._around.workers > 1,
        )
        await self._entrance.open(settings.host, settings.port)

    def refuse_new(self) -> None:
        """Answer new requests with 503 from now on; what runs goes on."""
        if self._corridor is not None:
            self._corridor.draining = True

    def check(self, settings: Settings) -> Reception:
        """The reception under other settings; raises `SettingsError` where they cannot be used."""
        reception = open_reception(settings)
        check_files(settings.tls)
        return reception

    def apply(self, settings: Settings, reception: Reception) -> None:
        """Go on by other settings, which `check` has found usable."""
        around = self._around
        before, self.settings = self.settings, settings
        self.replica_tls.replace(settings.tls)
        self._client_tls.replace(settings.tls)
        self._access_log.sample = settings.log.sample
        self._tracing.start, self._tracing.ratio = settings.tracing.start, settings.tracing.sample_ratio
        self.decisions.reconfigure(settings.policy_options.decisions_per_second)
        around.aliases.clear()
        around.aliases.update(settings.aliases)
        self.reception.replace(reception.door, reception.cors, reception.priority)
        assert self._upstream is not None
        assert self._admission is not None
        assert self._courier is not None
        assert self._corridor is not None
        self._upstream.reconfigure(slot_timeout=settings.admission.queue_timeout)
        timings = FirstContents(around.metrics, self._admission)
        self._courier.terms = attempt_terms(settings, timings, around.clock)
        self._courier.rules = retry_rules(settings)
        self._courier.budget.floor = settings.retry.budget_floor / around.workers
        self._courier.budget.share = settings.retry.budget
        self._corridor.limits = corridor_limits(settings)
        if key_terms(settings) != key_terms(before):
            self._corridor.keys = key_reader(settings)
        self._body_memory.most = settings.max_buffered_bytes

    def replan(self, settings: Settings) -> None:
        """Go on by other policies and rules of the queue: after the fleet has changed as the settings say."""
        assert self._admission is not None
        self._admission.reconfigure(policy_plan(settings), QueueRules.of(settings.admission))

    def note_cooling(self) -> None:
        """Somebody may have said that a replica is to cool off."""
        if self._admission is not None:
            self._admission.note_cooling(max((one.cool_until for one in self._around.fleet), default=0.0))

    def forget_connections(self, replica: Replica) -> None:
        """Its key may be another one: what is open to it is not used again."""
        if self._upstream is not None:
            self._upstream.removed(replica)

    async def close(self) -> None:
        """Close everything now; requests in flight are cut."""
        if self._bell is not None:
            self._bell.close()
        if self._entrance is not None:
            await self._entrance.close()
        if self._front is not None:
            await self._cut()
            for connection in self._front.connections:
                connection.force_close()
            await self._front.shutdown(1.0)
        if self._upstream is not None:
            await self._upstream.close()
        self._access_log.write_out()
        if self._exporter is not None:
            await asyncio.to_thread(self._exporter.close, SPANS_FLUSH)

    async def _cut(self) -> None:
        """Tell the clients whose requests still run that they are cut, rather than just leaving them."""
        for exchange in self._around.ledger.oldest_first():
            exchange.interrupt(
                Draining("The router was stopped before this request was answered; send it again.")
            )
        for _ in range(TURNS_TO_TELL):
            await asyncio.sleep(0)

    def _make_slots(self) -> Slots:
        limits, seat = self.settings.connector, self._around.ledger.seat
        make = Slots if seat is None else partial(CommonSlots, seat)
        return make(
            limit=limits.limit,
            limit_per_replica=limits.limit_per_replica,
            timeout=self.settings.admission.queue_timeout,
            ledger=self._around.ledger,
            clock=self._around.clock,
        )

    def _open_upstream(self, slots: Slots) -> Upstream:
        limits, around = self.settings.connector, self._around
        connector = Connector(
            limit=limits.limit,
            # The slots know replicas; the connector knows addresses, which replicas may share.
            limit_per_host=0,
            keepalive_timeout=limits.keepalive,
            ssl=self.replica_tls.context,
            descriptors=self._descriptors,
        )
        timeout = self.settings.timeouts.connect
        return Upstream(connector, slots, around.ledger, connect_timeout=timeout)

    def _make_courier(self, admission: Admission, upstream: Upstream) -> Courier:
        settings, around = self.settings, self._around
        roads = Roads(
            ledger=around.ledger,
            admission=admission,
            upstream=upstream,
            health=around.verdicts,
            refused=around.refused,
        )
        timings = FirstContents(around.metrics, admission)
        return Courier(
            roads,
            attempt_terms(settings, timings, around.clock),
            retry_rules(settings),
            RetryBudget(settings.retry.budget_floor / around.workers, settings.retry.budget),
        )

    def _make_corridor(self, admission: Admission, courier: Courier) -> Corridor:
        settings, around = self.settings, self._around
        rooms = Rooms(
            fleet=around.fleet,
            ledger=around.ledger,
            admission=admission,
            courier=courier,
            intake=Intake(self._body_memory, around.clock),
            endpoints=Endpoints(settings.extra_paths),
            local=around.local,
            reception=self.reception,
            register=Register(around.ledger, self._observe, around.clock, self._tracing),
            aliases=around.aliases,
            owners=self.owners,
        )
        return Corridor(rooms, corridor_limits(settings), key_reader(settings), around.clock)

    def _observe(self, exchange: Exchange) -> None:
        for tell in self._success_observers if exchange.outcome == OK else self._observers:
            tell(exchange)
