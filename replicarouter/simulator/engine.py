"""A simulated engine on a real socket: its scheduler driven by the loop's clock, one timer a step."""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from replicarouter.simulator.answers import Answer
from replicarouter.simulator.api import Api, GenerationRequest
from replicarouter.simulator.conditions import Conditions
from replicarouter.simulator.control import PREFIX, Control
from replicarouter.simulator.control_port import ControlPort
from replicarouter.simulator.entrance import Entrance
from replicarouter.simulator.exposition import MetricsPage
from replicarouter.simulator.faults import Fault, make_fault
from replicarouter.simulator.kv_blocks import KvBlocks
from replicarouter.simulator.measures import Measures
from replicarouter.simulator.options import EngineOptions
from replicarouter.simulator.profiles import PROFILES
from replicarouter.simulator.records import Records
from replicarouter.simulator.refusals import BUSY
from replicarouter.simulator.routes import Routes
from replicarouter.simulator.scheduler import Scheduler
from replicarouter.simulator.server import Connection, IdleConnections
from replicarouter.simulator.sleeping import METHODS, answer_sleeper
from replicarouter.simulator.speculation import Speculation
from replicarouter.simulator.wire import HttpRequest, Reply

Journal = Callable[[int, str, str], None]


class SimulatedEngine:
    """One engine. `requests` counts the generations that were accepted, `aborted` those whose client
    left, or whose connection was cut, before the end; `connections` are open now. `journal` hears
    what becomes of each request: the port, the request's name and an event of `Records`."""

    def __init__(
        self,
        options: EngineOptions | None = None,
        *,
        journal: Journal | None = None,
    ) -> None:
        self.options = options or EngineOptions()
        self.model = self.options.model
        self.requests = 0
        self.aborted = 0
        self.port = 0
        self.control_port = 0
        self.slowness = 1.0
        self.connections: set[Connection] = set()
        self.records = Records(self._tell if journal else None)
        self._journal = journal
        self.idle: IdleConnections
        self.entrance: Entrance
        self._profile = PROFILES[self.options.profile]
        self._boot()
        self._deserted = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop
        self._conditions: Conditions
        self._control: Control
        self._control_port: ControlPort | None = None
        self._started = False
        self._stopped = False
        self._frozen: set[str] = set()
        self._timer: asyncio.Handle | None = None

    def _boot(self) -> None:
        """Have nothing to do yet, and nothing counted."""
        options = self.options
        drafted = options.speculative_tokens
        self._scheduler = Scheduler(
            self._profile,
            max_num_seqs=options.max_num_seqs,
            blocks=KvBlocks(options.kv_blocks, options.block_size),
            measures=Measures(),
            speculation=Speculation(drafted, options.acceptance) if drafted else None,
        )
        started = time.time()
        self._page = MetricsPage(options, self._scheduler, started)
        api = Api(self.model, options.context, options.block_size, options.template)
        self._routes = Routes(api, self._page, int(started), options.version)
        self._in_step = False
        self._due = 0.0

    @property
    def url(self) -> str:
        """The address to send requests to."""
        return f"http://{self._host}:{self.port}"

    @property
    def control_url(self) -> str:
        """The address of `/sim/*` that faults do not reach."""
        return f"http://{self._host}:{self.control_port or self.port}"

    @property
    def running(self) -> int:
        """Sequences in the batch."""
        return self._scheduler.running

    @property
    def waiting(self) -> int:
        """Sequences queued."""
        return self._scheduler.waiting

    async def start(self) -> int:
        """Listen; the port, which is in `port` too. OSError when it cannot be had."""
        self._loop = asyncio.get_running_loop()
        self._deserted.set()
        self._boot()
        options = self.options
        self.idle = IdleConnections(self._loop, options.keep_alive)
        self.entrance = Entrance(lambda: Connection(self))
        self._conditions = Conditions(self, self._loop)
        self._control = Control(
            self.records,
            inject=self._conditions.inject,
            clear=self._conditions.clear,
            faults=self._conditions.as_json,
        )
        self.port = await self.entrance.bind(options.host, options.port)
        self._started = True
        try:
            if options.control_port is not None:
                self._control_port = ControlPort(self._control)
                self.control_port = await self._control_port.start(options.host, options.control_port)
            if options.load_seconds:
                self._conditions.load(options.load_seconds, options.loading)
            self.entrance.listen()
        except OSError:
            await self.stop()
            raise
        return self.port

    async def stop(self) -> None:
        """Close the port and cut every connection, as a killed engine would."""
        if not self._started:
            return
        self._started = False
        self._stopped = True
        self._conditions.stop()
        self.idle.stop()
        await self.entrance.close()
        if self._control_port:
            await self._control_port.stop()
        for connection in self.connections:
            connection.abort()
        await self._deserted.wait()
        if self._timer:
            self._timer.cancel()
            self._timer = None

    async def terminate(self, timeout: float) -> None:
        """What vLLM does on SIGTERM with `--shutdown-timeout`: it goes on listening and says it is healthy,
        refuses what is new with 500, and ends with its last request, or after `timeout` seconds."""
        self.inject(kind="draining")
        deadline = self._loop.time() + timeout
        while any(connection.busy for connection in self.connections) and self._loop.time() < deadline:
            await asyncio.sleep(0.01)
        await self.stop()

    async def hang_on_terminate(self) -> None:
        """What vLLM mostly does on SIGTERM without a shutdown timeout: the port refuses, open answers
        are silent, and it ends when the last of their clients has left."""
        self.inject(kind="sigterm_hang")
        await self._deserted.wait()
        await self.stop()

    # Scripted faults

    def inject(self, **said: object) -> None:
        """Let a fault begin, said as in `POST /sim/fault`; ValueError when it is none."""
        self._conditions.inject(make_fault(said))

    def clear_faults(self) -> None:
        """End every fault."""
        self._conditions.clear()

    def faults(self) -> dict[str, Any]:
        """What `GET /sim/fault` shows."""
        return self._conditions.as_json()

    @property
    def suffering(self) -> Iterable[Connection]:
        """The connections that faults of the whole engine befall."""
        return self.connections

    def limit_idleness(self, seconds: float | None) -> None:
        """Close connections that are idle for so long; None: as the options say."""
        self.idle.limit = self.options.keep_alive if seconds is None else seconds

    def freeze(self, reason: str, *, hold: bool = True) -> None:
        """Stop stepping, and if so told hold the numbers. Reasons add up."""
        self._frozen.add(reason)
        if hold:
            self._page.hold()
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def thaw(self, reason: str) -> None:
        """Take back a reason; without any other left, go on."""
        self._frozen.discard(reason)
        if not self._frozen:
            self._page.release()
            self._wake()

    def sleep(self, level: int, *, abort: bool) -> None:
        """Sleep: 1 offloads the weights, 2 discards them. What runs is aborted, or waits as what is new."""
        self.freeze("asleep", hold=False)
        self._page.sleep_level = level
        for connection in list(self.connections) if abort else ():
            connection.cut_short()
        self.reset_prefix_cache()

    def wake_up(self) -> None:
        """Serve on."""
        self._page.sleep_level = 0
        self.thaw("asleep")

    def reset_prefix_cache(self) -> None:
        """Let no block be found any more; nothing happens while any is in use."""
        self._scheduler.blocks.reset()

    @property
    def asleep(self) -> bool:
        """Whether it sleeps."""
        return "asleep" in self._frozen

    def reboot(self) -> None:
        """Be a new engine at the same port; no answer may be under way."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        self._boot()

    # For connections

    @property
    def most_answers(self) -> int:
        """How many answers a connection may have; 0: any number."""
        return self._conditions.close_every

    @property
    def sse_keep_alive(self) -> float:
        """Seconds between comments of a stream that has no token yet; 0: none."""
        return self.options.sse_keep_alive

    def respond(self, request: HttpRequest) -> Reply | GenerationRequest:
        """The reply to a request, or what it wants generated."""
        if request.path.startswith(PREFIX):
            return self._control.respond(request)
        if request.path in METHODS:
            return answer_sleeper(self, request)
        outcome = self._routes.respond(request)
        if isinstance(outcome, GenerationRequest) and self._too_many(len(outcome.plans)):
            self._scheduler.measures.rejections += 1
            return BUSY
        return outcome

    def generates(self, request: HttpRequest) -> bool:
        """Whether it is meant to have something generated."""
        return self._routes.generates(request)

    def meet(self, request: HttpRequest) -> Reply | Fault | None:
        """What scripted faults do to a request; None lets it be served."""
        return None if request.path.startswith(PREFIX) else self._conditions.meet(request)

    def connected(self, connection: Connection) -> None:
        """A client has come."""
        self.connections.add(connection)
        self._deserted.clear()
        if self._stopped:  # it was accepted, but not told yet, when the port was closed
            connection.abort()

    def disconnected(self, connection: Connection) -> None:
        """A client's connection has ended."""
        self.connections.discard(connection)
        if not self.connections:
            self._deserted.set()

    def submit(self, answer: Answer) -> None:
        """Queue the sequences of an answer."""
        self.requests += 1
        now = time.monotonic()
        for sequence in answer.sequences:
            self._scheduler.submit(sequence, now)
        self._wake()

    def _wake(self) -> None:
        """Begin to step, if there is something to do and nothing that forbids it."""
        idle = not (self._in_step or self.running or self.waiting)
        if self._timer is None and not self._frozen and not idle:
            delay = self.options.phase * self._paced(self._profile.decode_seconds(1))
            self._due = time.monotonic() + delay
            self._timer = self._after(delay)

    def cancel(self, answer: Answer) -> None:
        """Forget the sequences of an answer; their places and blocks are free at once."""
        self.aborted += 1
        for sequence in answer.sequences:
            self._scheduler.abort(sequence)

    def _turn(self) -> None:
        """End the step under way, tell the tokens that came of it, and begin the next."""
        now = time.monotonic()
        if self._in_step:
            advanced, finished = self._scheduler.finish_step(now)
            for sequence in advanced:
                sequence.listener.token()
            for sequence in finished:
                sequence.listener.finished()
        duration = self._scheduler.begin_step(now)
        self._in_step = duration is not None
        if duration is None:
            self._timer = None
            return
        seconds = self._paced(duration)
        # Late turns are made up for, so that the mean pace is the profile's, but by a step at most.
        self._due = max(self._due, now - seconds) + seconds
        self._timer = self._after(self._due - now if seconds else 0)

    def _too_many(self, sequences: int) -> bool:
        """Whether so many more are over the limit of the queue."""
        most = self.options.max_num_queued_reqs
        return bool(most) and self.running + self.waiting + sequences > most

    def _tell(self, name: str, event: str) -> None:
        assert self._journal is not None
        self._journal(self.port, name, event)

    @property
    def _host(self) -> str:
        return f"[{self.options.host}]" if ":" in self.options.host else self.options.host

    def _paced(self, seconds: float) -> float:
        return seconds * self.slowness / self.options.speed if self.options.speed else 0.0

    def _after(self, delay: float) -> asyncio.Handle:
        if delay > 0:
            return self._loop.call_later(delay, self._turn)
        return self._loop.call_soon(self._turn)


async def start_engines(
    options: EngineOptions, count: int, journal: Journal | None = None
) -> list[SimulatedEngine]:
    """Start engines on consecutive ports from `options.port` on (0: any), phases spread evenly. Their
    control ports are consecutive, too.

    OSError when a port cannot be had; then none is left running.
    """
    engines: list[SimulatedEngine] = []
    try:
        for number in range(count):
            port = options.port + number if options.port else 0
            control = options.control_port + number if options.control_port else options.control_port
            own = replace(options, port=port, control_port=control, phase=number / count)
            engine = SimulatedEngine(own, journal=journal)
            await engine.start()
            engines.append(engine)
    except OSError:
        for engine in engines:
            await engine.stop()
        raise
    return engines
