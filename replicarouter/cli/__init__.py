"""The command line: `replicarouter COMMAND`, one module a command, imported when it is used."""

import argparse
import gc
import importlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from replicarouter import __version__
from replicarouter.errors import SettingsError

GC_THRESHOLD = 50_000
"""Allocations between two looks of the cycle collector while a server starts: what is imported stays."""


class CommandFailed(Exception):
    """A command cannot do what it was asked; the message says why, and the exit status is 1."""


@dataclass(frozen=True, slots=True)
class Command:
    """Where a command is, and its line in the help.

    The module has NAME and HELP, as here, `add_arguments(parser)` and `run(arguments) -> int`. `reloads`:
    it is stopped by SIGTERM and told to reload by SIGHUP, which may come before it can see to that.
    """

    module: str
    help: str
    reloads: bool = False


COMMANDS: Mapping[str, Command] = {
    "serve": Command("replicarouter.cli.serve", "run the router", reloads=True),
    "engine": Command("replicarouter.cli.engine", "run simulated vLLM replicas"),
    "demo": Command("replicarouter.cli.demo", "watch simulated users, router and replicas at work"),
    "check": Command("replicarouter.cli.check", "acceptance test of a fleet or a single engine"),
    "diagnose": Command("replicarouter.cli.diagnose", "say where the requests are, and what limits them"),
    "bench": Command("replicarouter.cli.bench", "measurement campaigns"),
    "replicas": Command(
        "replicarouter.cli.replicas", "list, add, drain and remove replicas of a running router"
    ),
    "config": Command("replicarouter.cli.config", "show, check and explain settings"),
}


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one message, and takes no abbreviated flags."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})

    def error(self, message: str) -> NoReturn:
        """Leave with exit status 2."""
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status: 2 for bad usage or settings, 1 for other failures.

    Raises SystemExit where argparse does: for help, the version and bad usage.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    chosen = COMMANDS.get(_chosen(words) or "")
    if chosen is not None and chosen.reloads:
        gc.set_threshold(GC_THRESHOLD)
        with _early_signals():
            return _run(words)
    return _run(words)


@contextmanager
def _early_signals() -> Iterator[None]:
    """Until the command has handlers of its own, being told to stop is no failure, and what SIGHUP asks
    for is being done anyway."""
    replaced = {
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)),
        signal.SIGHUP: signal.signal(signal.SIGHUP, lambda *_: None),
    }
    try:
        yield
    finally:
        for number, handler in replaced.items():
            signal.signal(number, handler)


def _run(words: Sequence[str]) -> int:
    arguments, unknown = _parser(words).parse_known_args(words)
    if unknown:
        arguments.parser.error(f"unknown arguments: {' '.join(unknown)}")
    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()
    except SettingsError as error:
        return _fail(2, str(error))
    except CommandFailed as error:
        return _fail(1, str(error))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output has gone; the interpreter must not stumble over it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


def _chosen(words: Sequence[str]) -> str | None:
    return next((word for word in words if not word.startswith("-")), None)


def _fail(status: int, message: str) -> int:
    sys.stderr.write(f"replicarouter: {message}\n")
    return status


def _parser(words: Sequence[str]) -> Parser:
    parser = Parser(
        prog="replicarouter",
        description="A load-balancing proxy in front of LLM engine replicas.",
        epilog="`replicarouter COMMAND --help` says more about a command.",
    )
    parser.add_argument("--version", action="version", version=f"replicarouter {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", title="commands", required=True)
    chosen = _chosen(words)
    for name, command in COMMANDS.items():
        subparser = commands.add_parser(name, help=command.help)
        if name == chosen:
            module = importlib.import_module(command.module)
            subparser.description = f"{command.help[0].upper()}{command.help[1:]}."
            subparser.set_defaults(parser=subparser, run=module.run)
            module.add_arguments(subparser)
    return parser
