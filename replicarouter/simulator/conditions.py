"""What an engine goes through beside its work: scripted faults begin, strike and end here."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import orjson

from replicarouter.simulator.active_faults import Active, ActiveFaults
from replicarouter.simulator.entrance import Entrance
from replicarouter.simulator.faults import LOADING, Fault
from replicarouter.simulator.refusals import (
    CORE_DEAD,
    DRAINING,
    UNHEALTHY,
    no_such_model,
    refusal,
)
from replicarouter.simulator.wire import HttpRequest, Reply

_NO_MODELS = Reply(200, orjson.dumps({"object": "list", "data": []}))


class Suffering(Protocol):
    """A connection of an engine that something happens to."""

    def fail(self) -> None:
        """The engine core has died: end the answer under way as vLLM does."""

    def hush(self) -> None:
        """The engine has been told to end: say nothing more, or close if nothing is under way."""

    def kill(self) -> None:
        """The process is gone."""

    def cut_short(self) -> None:
        """The engine aborts what it generates: end the answer under way, which says so."""

    def close(self) -> None:
        """FIN after what has been written."""


class Machine(Protocol):
    """What faults need of their engine. `slowness` stretches its steps."""

    model: str
    slowness: float
    entrance: Entrance

    @property
    def suffering(self) -> Iterable[Suffering]:
        """The connections that are open now."""

    def limit_idleness(self, seconds: float | None) -> None:
        """Close connections that are idle for so long; None: as the options say."""

    def freeze(self, reason: str, *, hold: bool = True) -> None:
        """Stop stepping, and if so told hold the numbers. Reasons add up."""

    def thaw(self, reason: str) -> None:
        """Take back a reason."""

    def reboot(self) -> None:
        """Be a new engine at the same port."""


class Conditions:
    """The faults of one engine. `close_every`: how many answers a connection has (0: no limit)."""

    def __init__(self, machine: Machine, loop: asyncio.AbstractEventLoop) -> None:
        self.close_every = 0
        self._machine = machine
        self._loop = loop
        self._active = ActiveFaults()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._down = False
        self._effects: dict[str, tuple[Callable[[Fault], None], Callable[[], None]]] = {
            "refuse": (lambda _: machine.entrance.shut("refuse"), lambda: machine.entrance.reopen("refuse")),
            "slow": (self._slow, self._full_speed),
            "frozen": (lambda _: machine.freeze("frozen"), lambda: machine.thaw("frozen")),
            "core_killed": (self._kill_core, lambda: self._come_back("core_killed")),
            "sigterm_hang": (self._terminate, lambda: self._come_back("sigterm_hang")),
            "flapping": (self._flap, self._settle),
            "keep_alive": (
                lambda fault: machine.limit_idleness(fault.idle),
                lambda: machine.limit_idleness(None),
            ),
            "connection_close_every": (self._close_each, lambda: self._close_each(None)),
        }

    def inject(self, fault: Fault) -> None:
        """Let a fault begin, in place of an earlier one of its kind."""
        if earlier := self._active.get(fault.kind):
            self._end(earlier)
        until = None if fault.seconds is None else self._loop.time() + fault.seconds
        active = self._active.add(fault, until)
        if fault.kind in self._effects:
            self._effects[fault.kind][0](fault)
        if fault.seconds is not None:
            self._later(f"end {fault.kind}", fault.seconds, lambda: self._end(active))

    def load(self, seconds: float, phases: Sequence[str]) -> None:
        """Be one after the other of what `LOADING` names, each for an equal part of `seconds`."""
        each = seconds / len(phases)
        for number, phase in enumerate(phases):
            said = {**LOADING[phase].as_json(), "seconds": each}
            fault = Fault(**said)
            if number:
                self._later(f"load {number}", number * each, lambda fault=fault: self.inject(fault))  # type: ignore[misc]
            else:
                self.inject(fault)

    def clear(self) -> None:
        """End every fault, and the loading."""
        for name in [name for name in self._timers if name.startswith("load ")]:
            self._timers.pop(name).cancel()
        for active in self._active:
            self._end(active)

    def stop(self) -> None:
        """Let nothing more happen; what is, stays."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def meet(self, request: HttpRequest) -> Reply | Fault | None:
        """What happens to a request instead of, or beside, being served; None is the rule."""
        if not self._active:
            return None
        if reply := self._overruled(request):
            return reply
        if request.path == "/health" and (slow := self._active.get("health_slow")):
            return Fault(kind="delay", delay=slow.fault.delay)
        frozen = self._active.get("frozen")
        if frozen and not frozen.fault.heads and request.method == "POST":
            return Fault(kind="hang")
        fault = self._active.strike(request.method)
        if fault and fault.kind == "status":
            return refusal(fault)
        return DRAINING if fault and fault.kind == "draining" else fault

    def as_json(self) -> dict[str, Any]:
        """What is active, and what it did."""
        return self._active.as_json(self._loop.time())

    def _overruled(self, request: HttpRequest) -> Reply | None:
        """The answer that the state of the whole engine gives."""
        post = request.method == "POST"
        if request.path == "/health":
            return UNHEALTHY if self._down or self._active.get("core_killed") else None
        if post and self._active.get("core_killed"):
            return CORE_DEAD
        if self._active.get("no_models"):
            return no_such_model(self._machine.model) if post else self._no_models(request.path)
        return None

    def _no_models(self, path: str) -> Reply | None:
        return _NO_MODELS if path == "/v1/models" else None

    def _end(self, active: Active) -> None:
        if not self._active.remove(active):
            return
        kind = active.fault.kind
        for name in (f"end {kind}", kind):
            if timer := self._timers.pop(name, None):
                timer.cancel()
        if kind in self._effects:
            self._effects[kind][1]()

    def _later(self, name: str, seconds: float, step: Callable[[], None]) -> None:
        def due() -> None:
            del self._timers[name]
            step()

        if earlier := self._timers.pop(name, None):
            earlier.cancel()
        self._timers[name] = self._loop.call_later(seconds, due)

    # What befalls the whole engine

    def _slow(self, fault: Fault) -> None:
        self._machine.slowness = fault.factor

    def _full_speed(self) -> None:
        self._machine.slowness = 1.0

    def _close_each(self, fault: Fault | None) -> None:
        self.close_every = fault.every if fault else 0

    def _kill_core(self, fault: Fault) -> None:
        self._machine.freeze("core_killed")
        for connection in list(self._machine.suffering):
            connection.fail()
        self._later("core_killed", fault.linger, self._bury)

    def _bury(self) -> None:
        self._machine.entrance.shut("core_killed")
        for connection in list(self._machine.suffering):
            connection.close()

    def _terminate(self, _fault: Fault) -> None:
        self._machine.entrance.shut("sigterm_hang")
        self._machine.freeze("sigterm_hang")
        for connection in list(self._machine.suffering):
            connection.hush()

    def _come_back(self, reason: str) -> None:
        """As after a restart: what was open is lost, counters begin anew."""
        for connection in list(self._machine.suffering):
            connection.kill()
        self._machine.reboot()
        self._machine.thaw(reason)
        self._machine.entrance.reopen(reason)

    def _flap(self, fault: Fault) -> None:
        entrance = self._machine.entrance

        def go_down() -> None:
            if fault.how == "refuse":
                entrance.shut("flapping")
            else:
                self._down = True
            self._later("flapping", fault.down, come_up)

        def come_up() -> None:
            self._settle()
            self._later("flapping", fault.up, go_down)

        go_down()

    def _settle(self) -> None:
        self._down = False
        self._machine.entrance.reopen("flapping")
