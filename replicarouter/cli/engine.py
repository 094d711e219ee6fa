"""`replicarouter engine`: simulated engines until a signal ends them."""

import argparse
import asyncio
import gc
import signal
import sys

import uvloop

from replicarouter.cli import CommandFailed
from replicarouter.cli.startup import raise_descriptor_limit
from replicarouter.errors import SettingsError
from replicarouter.simulator import PROFILES, EngineOptions, SimulatedEngine, start_engines

NAME = "engine"
HELP = "run simulated vLLM replicas"
DEFAULT_PORT = 8001


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    options = EngineOptions()
    parser.description = (
        "Simulated vLLM replicas: OpenAI's API, a waiting queue, vLLM's metrics and the step times"
        " of a measured machine. No model and no GPU are needed; the words of the answers are made"
        " up. Stop them with Ctrl-C or SIGTERM."
    )
    flag = parser.add_argument
    flag("--host", default=options.host, help="address to listen on (default %(default)s)")
    flag("--port", type=int, default=DEFAULT_PORT, help="port of the first (default %(default)s)")
    flag("--count", type=int, default=1, help="replicas, on consecutive ports (default 1)")
    flag("--model", default=options.model, help="model name to serve (default %(default)s)")
    flag(
        "--profile",
        default=options.profile,
        choices=sorted(PROFILES),
        help="whose step times to keep (default %(default)s)",
    )
    flag(
        "--max-num-seqs",
        type=int,
        default=options.max_num_seqs,
        help="most sequences that run at a time; others wait (default %(default)s)",
    )
    flag(
        "--kv-blocks",
        type=int,
        default=options.kv_blocks,
        help="blocks of the KV cache (default %(default)s)",
    )
    flag(
        "--block-size",
        type=int,
        default=options.block_size,
        help="tokens in a block (default %(default)s)",
    )
    flag(
        "--speed",
        type=float,
        default=options.speed,
        help="how many times as fast as the profile; 0: as fast as it can (default 1)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT; CommandFailed when a port is taken, SettingsError for bad flags."""
    try:
        options = _options(arguments)
    except ValueError as error:
        raise SettingsError(str(error)) from None
    raise_descriptor_limit()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(options, arguments.count))
    return 0


def _options(arguments: argparse.Namespace) -> EngineOptions:
    options = EngineOptions(
        host=arguments.host,
        port=arguments.port,
        model=arguments.model,
        profile=arguments.profile,
        max_num_seqs=arguments.max_num_seqs,
        kv_blocks=arguments.kv_blocks,
        block_size=arguments.block_size,
        speed=arguments.speed,
    )
    if arguments.count < 1 or options.port + arguments.count > 65536:
        raise ValueError(f"count is {arguments.count}; accepted: 1 or more, up to port 65535")
    return options


async def _serve(options: EngineOptions, count: int) -> None:
    try:
        engines = await start_engines(options, count)
    except OSError as error:
        raise CommandFailed(f"cannot listen: {error.strerror or error}") from None
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    sys.stdout.write(_start_block(options, engines))
    sys.stdout.flush()
    gc.collect()
    gc.freeze()
    await stopped.wait()
    for engine in engines:
        await engine.stop()


def _start_block(options: EngineOptions, engines: list[SimulatedEngine]) -> str:
    pace = f"{options.speed:g} times its speed" if options.speed else "without its delays"
    title = (
        f"simulated engines: model {options.model}, profile {options.profile} at {pace},"
        f" max-num-seqs {options.max_num_seqs},"
        f" KV cache {options.kv_blocks} blocks of {options.block_size} tokens"
    )
    return "\n".join([title, *(f"  {engine.url}" for engine in engines), ""])
