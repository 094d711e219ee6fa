"""`replicarouter engine`: simulated engines until a signal ends them."""

import argparse
import asyncio
import gc
import os
import signal
import sys
import time
from pathlib import Path

import uvloop

from replicarouter.cli import CommandFailed
from replicarouter.cli.startup import raise_descriptor_limit
from replicarouter.errors import SettingsError
from replicarouter.simulator import PROFILES, EngineOptions, SimulatedEngine, start_engines
from replicarouter.simulator.faults import KINDS, LOADING
from replicarouter.simulator.records import NONCE_HEADER
from replicarouter.tasks import TaskSet
from replicarouter.words import counted

NAME = "engine"
HELP = "run simulated vLLM replicas"
DEFAULT_PORT = 8001


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    options = EngineOptions()
    parser.description = (
        "Simulated vLLM replicas: OpenAI's API, a waiting queue, a prefix cache, vLLM's metrics and the"
        " step times of a measured machine. No model and no GPU are needed; the words of the answers are"
        " made up, but where `The secret word is <word>.` stands in a chat the answer begins with that word."
        " Usage tells cached tokens, as with vLLM's --enable-prompt-tokens-details. Stop them with"
        " Ctrl-C or SIGTERM."
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
        help="blocks of the KV cache, which running sequences fill and earlier prompts and replies are"
        " found in until their room is needed (default %(default)s)",
    )
    flag(
        "--block-size",
        type=int,
        default=options.block_size,
        help="tokens in a block; of a common beginning whole blocks are found again (default %(default)s)",
    )
    flag(
        "--speed",
        type=float,
        default=options.speed,
        help="how many times as fast as the profile; 0: as fast as it can (default 1)",
    )
    _add_character(parser)
    _add_trouble(parser)


def _add_character(parser: argparse.ArgumentParser) -> None:
    """Declare the flags by which engines of one fleet may differ."""
    options = EngineOptions()
    flag = parser.add_argument_group("what it says of itself, and how it decodes").add_argument
    flag("--version", default=options.version, help="what /version tells (default %(default)s)")
    flag(
        "--max-model-len",
        type=int,
        default=options.max_model_len,
        help="tokens of a prompt and its answer at most (default %(default)s)",
    )
    flag(
        "--kv-cache-dtype",
        default=options.kv_cache_dtype,
        help="what the metrics page tells of the cache (default %(default)s)",
    )
    flag(
        "--template",
        metavar="TEXT",
        default=options.template,
        help="what the chat template puts before every conversation (default: nothing)",
    )
    flag(
        "--speculative-tokens",
        type=int,
        metavar="K",
        default=options.speculative_tokens,
        help="tokens drafted for each sequence in each step, which gives it one more than are accepted, each"
        " in an event of its own (default 0: no speculative decoding)",
    )
    flag(
        "--acceptance",
        type=float,
        metavar="SHARE",
        default=options.acceptance,
        help="how probably a drafted token is accepted if those before it are (default %(default)g)",
    )
    flag(
        "--without-metric",
        action="append",
        metavar="NAME",
        default=[],
        help="family that the metrics page lacks, as vllm:num_requests_waiting; may be repeated",
    )


def _add_trouble(parser: argparse.ArgumentParser) -> None:
    """Declare the flags that make an engine a difficult one."""
    options = EngineOptions()
    flag = parser.add_argument_group(
        "trouble", "`POST /sim/fault` scripts faults: " + ", ".join(KINDS)
    ).add_argument
    flag(
        "--control-port",
        type=int,
        help="port of the first that answers /sim/* whatever the engine's own port does; 0: any"
        " (default: /sim/* at the engine's port only)",
    )
    flag(
        "--load-seconds",
        type=float,
        default=options.load_seconds,
        help="how long the engine loads before it serves (default %(default)g)",
    )
    flag(
        "--loading",
        default=",".join(options.loading),
        help="what it is like meanwhile: some of " + ", ".join(LOADING) + ", one after the other,"
        " separated by commas (default %(default)s, as vLLM is)",
    )
    flag(
        "--max-num-queued-reqs",
        type=int,
        default=options.max_num_queued_reqs,
        help="running and waiting sequences beyond which it answers 503, busy; 0: no limit (default 0)",
    )
    flag(
        "--sse-keep-alive-interval",
        type=float,
        default=options.sse_keep_alive,
        help="seconds between comments of a stream that has no token yet; 0: none (default 0)",
    )
    flag(
        "--sigterm",
        default="fast",
        choices=("fast", "vllm", "drain"),
        help="what SIGTERM does. fast: ends at once; vllm: refuses connections, leaves open answers silent"
        " until their clients go, as vLLM mostly does; drain: as vLLM with --shutdown-timeout, answers"
        " what is new with 500 and finishes what runs. A second one ends at once (default %(default)s)",
    )
    flag(
        "--shutdown-timeout",
        type=float,
        default=10.0,
        help="most seconds that --sigterm drain takes (default %(default)g)",
    )
    flag(
        "--journal",
        type=Path,
        help="append a line to this file for each event of a request: Unix time, port, event, and the value"
        f" of its {NONCE_HEADER} or X-Request-Id header",
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT; CommandFailed when a port is taken, SettingsError for bad flags."""
    try:
        options = _options(arguments)
    except ValueError as error:
        raise SettingsError(str(error)) from None
    raise_descriptor_limit()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(options, arguments))
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
        control_port=arguments.control_port,
        load_seconds=arguments.load_seconds,
        loading=tuple(arguments.loading.split(",")),
        max_num_queued_reqs=arguments.max_num_queued_reqs,
        sse_keep_alive=arguments.sse_keep_alive_interval,
        version=arguments.version,
        max_model_len=arguments.max_model_len,
        kv_cache_dtype=arguments.kv_cache_dtype,
        template=arguments.template,
        speculative_tokens=arguments.speculative_tokens,
        acceptance=arguments.acceptance,
        without_metrics=tuple(arguments.without_metric),
    )
    last = max(options.port, options.control_port or 0) + arguments.count
    if arguments.count < 1 or last > 65536:
        raise ValueError(f"count is {arguments.count}; accepted: 1 or more, up to port 65535")
    return options


async def _serve(options: EngineOptions, arguments: argparse.Namespace) -> None:
    journal = _Journal(arguments.journal) if arguments.journal else None
    try:
        engines = await start_engines(options, arguments.count, journal.write if journal else None)
    except OSError as error:
        raise CommandFailed(f"cannot listen: {error.strerror or error}") from None
    except ValueError as error:  # a metric that no page has
        raise SettingsError(str(error)) from None
    signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signals.put_nowait, number)
    sys.stdout.write(_start_block(options, engines))
    sys.stdout.flush()
    gc.collect()
    gc.freeze()
    tasks = TaskSet()
    if await signals.get() == signal.SIGTERM and arguments.sigterm != "fast":
        leaving = tasks.start(_leave(engines, arguments), "leave slowly")
        again = tasks.start(_heard(signals), "hear a second signal")
        await asyncio.wait({leaving, again}, return_when=asyncio.FIRST_COMPLETED)
    await tasks.close()
    for engine in engines:
        await engine.stop()
    if journal:
        journal.close()


async def _leave(engines: list[SimulatedEngine], arguments: argparse.Namespace) -> None:
    """End the engines as `--sigterm` says, all at the same time."""
    if arguments.sigterm == "drain":
        await asyncio.gather(*(engine.terminate(arguments.shutdown_timeout) for engine in engines))
    else:
        await asyncio.gather(*(engine.hang_on_terminate() for engine in engines))


async def _heard(signals: "asyncio.Queue[signal.Signals]") -> None:
    await signals.get()


class _Journal:
    """A file that gets a line for each event, at once: it is complete even if the process is killed."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise CommandFailed(f"cannot write {path}: {error.strerror}") from None

    def write(self, port: int, name: str, event: str) -> None:
        """Append one event."""
        os.write(self._file, f"{time.time():.4f} {port} {event} {name}\n".encode())

    def close(self) -> None:
        """No more events will come."""
        os.close(self._file)


def _start_block(options: EngineOptions, engines: list[SimulatedEngine]) -> str:
    pace = f"{options.speed:g} times its speed" if options.speed else "without its delays"
    title = (
        f"{counted(len(engines), 'simulated engine')}: model {options.model}, profile {options.profile}"
        f" at {pace}, max-num-seqs {options.max_num_seqs},"
        f" KV cache {counted(options.kv_blocks, 'block')} of {counted(options.block_size, 'token')}"
    )
    controlled = options.control_port is not None
    rows = [f"  {e.url}" + f"  control {e.control_url}" * controlled for e in engines]
    return "\n".join([title, *rows, ""])
