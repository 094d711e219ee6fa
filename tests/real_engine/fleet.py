"""Start several real vLLM servers at the price of one: import vLLM once, then fork a process per server.

Runs under the Python of the vLLM environment. A line `PORT [NAME=VALUE ...] [FLAG ...]` on standard input
starts a server with these variables and flags (anew, after its death), and a line with its process id comes
back at once; `/health` says when it serves.
Each server leads a process group. The end of standard input ends them all.
"""

import argparse
import importlib
import multiprocessing
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

THRIFT = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TORCHDYNAMO_DISABLE": "1",  # else the first request for logprobs compiles for some 20 s
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # else the CPU platform replaces the `uni` executor
    "VLLM_NO_USAGE_STATS": "1",
}
THRIFTY_FLAGS = (
    "--host=127.0.0.1",
    "--dtype=float32",
    "--enforce-eager",
    "--distributed-executor-backend=uni",
    "--num-gpu-blocks-override=512",
)

HEAVY_MODULES = (
    "vllm.entrypoints.launchers.api_server.entry",
    "vllm.entrypoints.launchers.cli_args",
    "vllm.entrypoints.serve.utils.api_utils",
    "vllm.model_executor.models.qwen3",
    "vllm.v1.engine.async_llm",
    "vllm.v1.engine.core",
    "vllm.v1.executor.uniproc_executor",
    "vllm.v1.worker.cpu_worker",
)


def import_everything() -> None:
    """Import what a server needs, and let it fork its engine process, which vLLM spawns on a CPU.

    A spawned process would import all of it again. The modules take the function by name, so it has to
    change before they are imported.
    """
    system_utils = importlib.import_module("vllm.utils.system_utils")
    setattr(system_utils, "get_mp_context", lambda: multiprocessing.get_context("fork"))  # noqa: B010
    for name in HEAVY_MODULES:
        importlib.import_module(name)


def let_go_of(port: int) -> None:
    """Close the server's listening socket in its engine process, which would not have it had it been spawned:
    the port would stay open when the server alone is killed."""
    for number in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        with suppress(OSError), socket.fromfd(number, socket.AF_INET, socket.SOCK_STREAM) as copy:
            if copy.getsockname()[1:2] == (port,):
                # The number stays taken: the interpreter's own socket object closes it some day.
                with Path(os.devnull).open("rb") as nothing:
                    os.dup2(nothing.fileno(), number)


def serve(port: int, words: list[str], log: Path) -> NoReturn:
    """Become the server on `port`; words that do not begin with a dash set variables."""
    os.setsid()
    flags = [word for word in words if word.startswith("-")]
    os.environ |= dict(word.split("=", 1) for word in words if not word.startswith("-"))
    with log.open("ab") as output, Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    os.register_at_fork(after_in_child=lambda: let_go_of(port))
    sys.argv = ["vllm", f"--port={port}", *THRIFTY_FLAGS, *flags]
    importlib.import_module("vllm.entrypoints.launchers.api_server.entry").main()
    sys.exit()


def take_orders(flags: list[str], logs: Path) -> set[int]:
    """Start servers until standard input ends; their process ids."""
    started = set()
    for line in sys.stdin:
        port, *own = line.split()
        process = os.fork()
        if not process:
            serve(int(port), [*flags, *own], logs / f"vllm-{port}.log")
        started.add(process)
        print(process, flush=True)
    return started


def kill_groups(processes: set[int]) -> None:
    """End all servers with what they started."""
    for process in processes:
        try:
            os.killpg(process, signal.SIGKILL)
        except ProcessLookupError:
            continue
        os.waitpid(process, 0)


def main() -> None:
    """Import, then take orders."""
    parser = argparse.ArgumentParser(description=__doc__, epilog="Flags of vLLM for all servers come last.")
    parser.add_argument("--logs", type=Path, required=True, help="folder for one log file per server")
    arguments, flags = parser.parse_known_args()
    os.environ |= THRIFT
    import_everything()
    kill_groups(take_orders(flags, arguments.logs))
    os._exit(0)  # a regular end takes 4 s with torch loaded


if __name__ == "__main__":
    main()
