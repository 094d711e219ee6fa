"""A simulated engine on a real socket: its scheduler driven by the loop's clock, one timer a step."""

import asyncio
import time
from dataclasses import replace

from replicarouter.simulator.answers import Answer
from replicarouter.simulator.api import Api
from replicarouter.simulator.exposition import MetricsPage
from replicarouter.simulator.kv_blocks import KvBlocks
from replicarouter.simulator.measures import Measures
from replicarouter.simulator.options import EngineOptions
from replicarouter.simulator.profiles import PROFILES
from replicarouter.simulator.routes import Routes
from replicarouter.simulator.scheduler import Scheduler
from replicarouter.simulator.server import Connection, IdleConnections

_BACKLOG = 2048


class SimulatedEngine:
    """One engine. `requests` counts the generations that were accepted, `aborted` those whose client
    left before the end; `connections` are open now."""

    def __init__(self, options: EngineOptions | None = None) -> None:
        self.options = options or EngineOptions()
        self.model = self.options.model
        self.requests = 0
        self.aborted = 0
        self.port = 0
        self.connections: set[Connection] = set()
        self.idle: IdleConnections
        self.routes: Routes
        self._profile = PROFILES[self.options.profile]
        self._scheduler = Scheduler(
            self._profile,
            max_num_seqs=self.options.max_num_seqs,
            blocks=KvBlocks(self.options.kv_blocks, self.options.block_size),
            measures=Measures(),
        )
        self._deserted = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop
        self._server: asyncio.Server | None = None
        self._stopped = False
        self._timer: asyncio.Handle | None = None
        self._in_step = False
        self._due = 0.0

    @property
    def url(self) -> str:
        """The address to send requests to."""
        host = f"[{self.options.host}]" if ":" in self.options.host else self.options.host
        return f"http://{host}:{self.port}"

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
        started = time.time()
        page = MetricsPage(self.options, self._scheduler, started)
        api = Api(self.model, self.options.context)
        self.routes = Routes(api, page, int(started))
        self.idle = IdleConnections(self._loop, self.options.keep_alive)
        self._server = await self._loop.create_server(
            lambda: Connection(self), self.options.host, self.options.port, backlog=_BACKLOG
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self.port

    async def stop(self) -> None:
        """Close the port and cut every connection, as a killed engine would."""
        if self._server is None:
            return
        self._stopped = True
        self.idle.stop()
        self._server.close()
        for connection in self.connections:
            connection.abort()
        await self._server.wait_closed()
        await self._deserted.wait()
        if self._timer:
            self._timer.cancel()
            self._timer = None
        self._server = None

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
        if self._timer is None:
            delay = self.options.phase * self._paced(self._profile.decode_seconds(1))
            self._due = now + delay
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

    def _paced(self, seconds: float) -> float:
        return seconds / self.options.speed if self.options.speed else 0.0

    def _after(self, delay: float) -> asyncio.Handle:
        if delay > 0:
            return self._loop.call_later(delay, self._turn)
        return self._loop.call_soon(self._turn)


async def start_engines(options: EngineOptions, count: int) -> list[SimulatedEngine]:
    """Start engines on consecutive ports from `options.port` on (0: any), phases spread evenly.

    OSError when a port cannot be had; then none is left running.
    """
    engines: list[SimulatedEngine] = []
    try:
        for number in range(count):
            port = options.port + number if options.port else 0
            own = replace(options, port=port, phase=number / count)
            engine = SimulatedEngine(own)
            await engine.start()
            engines.append(engine)
    except OSError:
        for engine in engines:
            await engine.stop()
        raise
    return engines
