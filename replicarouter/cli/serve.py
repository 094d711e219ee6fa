"""`replicarouter serve`: the router."""

import argparse
import asyncio
import errno
import gc
import logging
import os
import signal
import sys

import uvloop

from replicarouter.app import Router
from replicarouter.cli import CommandFailed
from replicarouter.cli.settings_flags import add_settings_arguments, settings_from
from replicarouter.cli.startup import raise_descriptor_limit, start_up_block
from replicarouter.settings import Settings
from replicarouter.tasks import TaskSet
from replicarouter.telemetry import logs

NAME = "serve"
HELP = "run the router"

GC_THRESHOLD = 20_000
"""Allocations between two looks of the cycle collector: a request leaves hardly any cycles behind."""

log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """All settings that have a flag, and the file."""
    add_settings_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Serve until told to stop: 0 after a drain, 1 when a port is taken or a second signal came."""
    settings = settings_from(arguments, os.environ).settings
    logs.set_up(settings.log.level, settings.log.format)
    descriptors = raise_descriptor_limit()
    return uvloop.run(_serve(settings, descriptors))


async def _serve(settings: Settings, descriptors: int) -> int:
    router = Router(settings)
    try:
        await router.start()
    except OSError as error:
        raise CommandFailed(_cannot_listen(settings, error)) from error
    block = start_up_block(
        settings,
        router.fleet.replicas,
        port=router.port,
        admin_port=router.admin_port,
        descriptors=descriptors,
    )
    sys.stdout.write(block)
    sys.stdout.flush()
    # What lives now lives for ever: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    signals: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signals.put_nowait, signal.Signals(number).name)
    log.info("draining", extra={"signal": await signals.get(), "in_flight": len(router.ledger.in_flight)})
    return await _wind_down(router, settings, signals)


async def _wind_down(router: Router, settings: Settings, signals: "asyncio.Queue[str]") -> int:
    """Drain, unless a second signal or the time limit comes first."""
    tasks = TaskSet()
    drained = asyncio.Event()
    forced = False

    async def drain() -> None:
        await router.drain(delay=settings.drain.delay, limit=settings.drain.timeout)
        drained.set()

    async def second_signal() -> None:
        nonlocal forced
        await signals.get()
        forced = True
        drained.set()

    tasks.start(drain(), "drain")
    tasks.start(second_signal(), "second signal")
    await drained.wait()
    await tasks.close()
    left = len(router.ledger.in_flight)
    if left:
        log.warning("requests cut", extra={"in_flight": left, "forced": forced})
    await router.stop()
    return 1 if forced else 0


def _cannot_listen(settings: Settings, error: OSError) -> str:
    ports = f"{settings.host}:{settings.port}"
    if settings.admin.port:
        ports += f" or {settings.admin.host}:{settings.admin.port}"
    if error.errno == errno.EADDRINUSE:
        return (
            f"port in use: cannot listen on {ports}; "
            "stop what listens there, or choose --port or --admin-port"
        )
    return f"cannot listen on {ports}: {error.strerror or error}"
