"""`replicarouter serve`: the router."""

import argparse
import asyncio
import errno
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from replicarouter.app import Router
from replicarouter.cli import CommandFailed
from replicarouter.cli.settings_flags import add_settings_arguments, settings_from
from replicarouter.cli.startup import raise_descriptor_limit, return_large_blocks, start_up_block
from replicarouter.errors import CannotListen, CannotStart, SettingsError
from replicarouter.fleet.lifecycle import State
from replicarouter.fleet.replica import FILE, SETTINGS
from replicarouter.reload.files import files_of
from replicarouter.reload.reloader import Reloader
from replicarouter.service import ServiceManager
from replicarouter.settings import Settings
from replicarouter.tasks import TaskSet
from replicarouter.telemetry import logs
from replicarouter.words import counted

if TYPE_CHECKING:
    from replicarouter.commons.memory import Commons
    from replicarouter.workers.keeper import Keeper
    from replicarouter.workers.nursery import Nursery

NAME = "serve"
HELP = "run the router"

GC_THRESHOLD = 20_000
"""Allocations between two looks of the cycle collector: a request leaves hardly any cycles behind."""

STOPPING = (signal.SIGTERM, signal.SIGINT)
"""The first of these drains, the second ends at once."""

NO_WORKERS = "no workers"
"""Stands for a signal: workers that end cannot be replaced any more, and a new router is needed."""

log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """All settings that have a flag, the file, and whether to watch it."""
    add_settings_arguments(parser)
    parser.add_argument(
        "--watch",
        action="store_true",
        help="Read the settings again, as on SIGHUP, when their file, the keys or a certificate change.",
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until told to stop: 0 after a drain, 1 when a port is taken, a second signal came or there can be
    no workers any more."""

    def load() -> Settings:
        return settings_from(arguments, os.environ).settings

    loaded = settings_from(arguments, os.environ)
    settings = loaded.settings
    origin = FILE if loaded.origins["replicas"] == str(arguments.config) else SETTINGS
    if arguments.watch and not files_of(settings, arguments.config):
        raise SettingsError("--watch: there is no file to watch; give --config FILE")
    return_large_blocks()
    descriptors = raise_descriptor_limit()
    order = _Order(settings, load, arguments.config, arguments.watch, origin)
    # Before there is a thread or an event loop, which no fork would bring along whole.
    crew = _Crew.of(settings) if settings.workers > 1 else None
    logs.set_up(settings.log.level, settings.log.format)
    return uvloop.run(_serve(order, descriptors, crew))


@dataclass(frozen=True, slots=True)
class _Order:
    """What to serve by, how to read it again, whether to do so when its files change, and where the list of
    replicas is from."""

    settings: Settings
    load: Callable[[], Settings]
    config: Path | None
    watch: bool
    origin: str


@dataclass(frozen=True, slots=True)
class _Crew:
    """What has to be there before the event loop so that there can be workers."""

    commons: "Commons"
    nursery: "Nursery"

    @classmethod
    def of(cls, settings: Settings) -> "_Crew":
        from replicarouter.commons.memory import Commons  # noqa: PLC0415 - a single process needs none of it
        from replicarouter.workers.nursery import Nursery  # noqa: PLC0415
        from replicarouter.workers.worker import work  # noqa: PLC0415

        commons = Commons(settings.workers)
        gc.collect()
        # What is shared with the workers is not to be touched, or each would get its own copy.
        gc.freeze()
        return cls(commons, Nursery.open(partial(work, commons, settings.log)))

    def keeper(self, settings: Settings, origin: str, failed: Callable[[], None]) -> "Keeper":
        from replicarouter.workers.keeper import Keeper  # noqa: PLC0415

        return Keeper(settings, self.commons, self.nursery, origin=origin, failed=failed)


async def _serve(order: _Order, descriptors: int, crew: _Crew | None) -> int:
    settings = order.settings
    signals: asyncio.Queue[str] = asyncio.Queue()
    router: Router | Keeper
    if crew is None:
        router = Router(settings, origin=order.origin)
    else:
        router = crew.keeper(settings, order.origin, lambda: signals.put_nowait(NO_WORKERS))
    manager = ServiceManager.of(os.environ, os.getpid())
    loop = asyncio.get_running_loop()
    this = asyncio.current_task()
    assert this is not None
    for number in STOPPING:
        loop.add_signal_handler(number, this.cancel)
    # Settings and certificates have been read; what changes until all is open is read again afterwards.
    asked = asyncio.Event()
    loop.add_signal_handler(signal.SIGHUP, asked.set)
    try:
        await router.start()
    except asyncio.CancelledError:
        return 0
    except (CannotListen, CannotStart) as error:
        raise CommandFailed(_cannot_start(settings, error)) from error
    for number in STOPPING:
        loop.add_signal_handler(number, signals.put_nowait, signal.Signals(number).name)
    reloads = TaskSet()
    reloader = Reloader(router, order.load, order.config)

    def reload() -> None:
        reloads.start(_reload(router, reloader, manager), "reload")

    loop.add_signal_handler(signal.SIGHUP, reload)
    if asked.is_set():
        reload()
    if order.watch:
        reloads.start(reloader.watch(), "watch settings")
    block = start_up_block(
        settings,
        router.fleet.replicas,
        port=router.port,
        admin_port=router.admin_port,
        descriptors=descriptors,
        reload=_how_to_reload(order),
    )
    sys.stdout.write(block)
    sys.stdout.flush()
    # What lives now lives for ever: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    manager.ready(_status(router))
    reloads.start(manager.keep_alive(partial(_status, router)), "tell the service manager")
    log.info("draining", extra={"signal": (reason := await signals.get()), "in_flight": router.in_flight})
    try:
        status = await _wind_down(router, signals, manager)
        return 1 if reason == NO_WORKERS else status
    finally:
        await reloads.close()


async def _reload(router: "Router | Keeper", reloader: Reloader, manager: ServiceManager) -> None:
    manager.reloading()
    try:
        await reloader.reload()
    finally:
        manager.ready(_status(router))


def _status(router: "Router | Keeper") -> str:
    """One line for `systemctl status`."""
    requests = counted(router.in_flight, "request")
    if router.draining:
        return f"draining {requests}"
    replicas = router.fleet.replicas
    ready = sum(replica.state is State.READY for replica in replicas)
    kept = "" if router.reloaded else "; settings not reloaded, the log says why"
    return f"{ready} of {counted(len(replicas), 'replica')} ready, {requests} in flight{kept}"


def _how_to_reload(order: _Order) -> str:
    files = [str(file) for file in files_of(order.settings, order.config)]
    if not files:
        return "on SIGHUP, but no file is read"
    return f"on SIGHUP{' and on changes' if order.watch else ''}: {', '.join(files)}"


async def _wind_down(
    router: "Router | Keeper", signals: "asyncio.Queue[str]", manager: ServiceManager
) -> int:
    """Drain, unless a second signal or the time limit comes first."""
    tasks = TaskSet()
    drained = asyncio.Event()
    forced = False
    limits = router.settings.drain

    async def drain() -> None:
        await router.drain(delay=limits.delay, limit=limits.timeout)
        drained.set()

    async def second_signal() -> None:
        nonlocal forced
        await signals.get()
        forced = True
        drained.set()

    tasks.start(drain(), "drain")
    tasks.start(second_signal(), "second signal")
    manager.stopping(f"draining {counted(router.in_flight, 'request')}")
    tasks.start(manager.keep_draining(partial(_status, router)), "tell the service manager")
    await drained.wait()
    await tasks.close()
    left = router.in_flight
    if left:
        log.warning("requests cut", extra={"in_flight": left, "forced": forced})
    await router.stop()
    return 1 if forced else 0


def _cannot_start(settings: Settings, error: CannotListen | CannotStart) -> str:
    if isinstance(error, CannotStart):
        return str(error)
    if error.errno != errno.EADDRINUSE:
        return f"cannot listen on {error.address}: {error.strerror}"
    flag = "--port" if error.port == settings.port else "--admin-port"
    return f"port in use: cannot listen on {error.address}; stop what listens there, or choose another {flag}"
