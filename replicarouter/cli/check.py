"""`replicarouter check`: acceptance of a fleet behind a router, or of a single engine."""

import argparse
import asyncio
import json
import os
import random
import sys
import time

from rich.console import Console

from replicarouter.acceptance import (
    CHECKS,
    Check,
    CheckError,
    Place,
    Result,
    Wishes,
    discover,
    inspect,
    open_session,
)
from replicarouter.acceptance.keys import KEY, REPLICA_KEY, TOKEN
from replicarouter.acceptance.report import accepted, closing, document, heading, row
from replicarouter.cli import CommandFailed
from replicarouter.cli.startup import raise_descriptor_limit
from replicarouter.cli.values import base_url, count, seconds

NAME = "check"
HELP = "acceptance test of a fleet or a single engine"

WIDTH = 80
"""Columns where there is no terminal."""

_DESCRIPTION = """\
Acceptance of a fleet: asks the router, and each replica past it, what users
will rely on, and says of each check whether it passes, why, and what to change.

URL is a router's main port or a single engine. The replicas behind a router
are told by its admin API, or given with --replica. Where they are not known the
acceptance fails, unless --router-only says that the router alone will do.
"""

_EPILOG = """\
What it sends: a few requests at a time, with random prompts that no cache
knows, all of it small but the needle. With R replicas and N streams
(--concurrency) that is for each model about 50 + 10 R + N requests,
64 N + 200 R + 2000 generated tokens, and (R + 4) times --needle + 8000 prompt
tokens; --list has it check by check. It changes nothing. Run it while the fleet
is otherwise idle: beside other traffic, aborts and affinity are hard to judge.

Secrets: --key is sent to URL. The token is sent to the admin port of this
machine, and to another host only if --admin names it: over plain HTTP it can be
read on its way. --replica-key is sent to all replicas; without it, the key in
VLLM_API_KEY only to those that have answered 401 without one.

Exit status: 0 when no check failed (warnings do not count), 1 when one did or
nothing answers at URL, 2 for bad usage, 130 when it was interrupted.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description, parser.epilog = _DESCRIPTION, _EPILOG
    parser.add_argument(
        "url", metavar="URL", nargs="?", type=base_url, help="a router's main port, or an engine"
    )
    _add_place(parser)
    flag = parser.add_argument_group("what is checked").add_argument
    flag("--model", metavar="NAME", action="append", help="a model to check; may repeat (default: all)")
    flag(
        "--concurrency",
        metavar="N",
        type=count,
        default=Wishes().concurrency,
        help="streams at a time, after 1, 4 and 8 (default %(default)s)",
    )
    flag("--tools", action="store_true", help="want tool calls that fit their schema")
    flag(
        "--needle",
        metavar="TOKENS",
        type=count,
        help="tokens of the long prompts (default 2000, or what fits)",
    )
    flag(
        "--timeout",
        metavar="SECONDS",
        type=seconds,
        default=Wishes().timeout,
        help="most seconds for one check (default %(default)g)",
    )
    flag("--only", metavar="CHECK", action="append", choices=[*CHECKS], help="run this one; may repeat")
    flag("--skip", metavar="CHECK", action="append", choices=[*CHECKS], help="leave this one out; may repeat")
    flag("--list", action="store_true", help="tell the checks and what each sends, and leave")
    flag("--json", action="store_true", help="print a document, not a table")


def run(arguments: argparse.Namespace) -> int:
    """Check and say so; CommandFailed when nothing can be checked."""
    if arguments.list:
        sys.stdout.write("".join(map(_line, CHECKS.values())))
        return 0
    if arguments.url is None:
        arguments.parser.error("say which URL to check")
    if arguments.router_only and (arguments.replica or arguments.admin):
        arguments.parser.error("--router-only asks neither --admin nor --replica: leave one out")
    raise_descriptor_limit()
    try:
        return asyncio.run(_check(arguments))
    except KeyboardInterrupt:
        sys.stderr.write("replicarouter: interrupted; no stream is left open\n")
        raise


async def _check(arguments: argparse.Namespace) -> int:
    wishes = Wishes(
        concurrency=arguments.concurrency,
        tools=arguments.tools,
        needle=arguments.needle,
        timeout=arguments.timeout,
        models=tuple(arguments.model or ()),
        only=frozenset(arguments.only or ()),
        skip=frozenset(arguments.skip or ()),
    )
    console = _console(quiet=arguments.json)
    async with open_session() as session:
        try:
            async with asyncio.timeout(arguments.timeout):
                scene = await discover(_place(arguments), wishes, session, time.monotonic, random.Random())
        except CheckError as error:
            raise CommandFailed(f"{arguments.url} cannot be checked: {error}") from None
        except TimeoutError:
            raise CommandFailed(f"{arguments.url} does not answer within {arguments.timeout:g} s") from None
        console.print(heading(scene, console.width), soft_wrap=True)
        several = len(scene.models) > 1

        def heard(result: Result) -> None:
            console.print(row(result, console.width, with_model=several), soft_wrap=True)

        results = await inspect(scene, heard)
    console.print()
    console.print(closing(scene, results, console.width), soft_wrap=True)
    if arguments.json:
        sys.stdout.write(json.dumps(document(scene, results), indent=2, ensure_ascii=False) + "\n")
    return 0 if accepted(results) else 1


def _place(arguments: argparse.Namespace) -> Place:
    return Place(
        url=arguments.url,
        admin=arguments.admin or "",
        replicas=tuple(arguments.replica or ()),
        router_only=arguments.router_only,
        key=arguments.key or "",
        token=arguments.token or "",
        replica_key=arguments.replica_key or "",
        spare_key=os.environ.get(REPLICA_KEY.variable, ""),
    )


def _add_place(parser: argparse.ArgumentParser) -> None:
    flag = parser.add_argument_group("where it looks").add_argument
    flag(
        "--admin",
        metavar="URL",
        type=base_url,
        help="the router's admin port (default: 8081 at the same host)",
    )
    flag("--replica", metavar="URL", type=base_url, action="append", help="a replica behind it; may repeat")
    flag("--router-only", action="store_true", help="ask the router, and no replica past it")
    secrets = {
        KEY: f"key for URL (or set {KEY.variable})",
        TOKEN: f"token of the admin port (or set {TOKEN.variable}); see below where it is sent",
        REPLICA_KEY: f"key for all replicas ({REPLICA_KEY.variable} is for those that want one)",
    }
    for secret, told in secrets.items():
        # A key that nobody gave by flag does not go to replicas that have not asked for one.
        default = None if secret is REPLICA_KEY else os.environ.get(secret.variable)
        flag(secret.flag, metavar=secret.noun.upper(), default=default, help=told)


def _line(check: Check) -> str:
    return f"{check.name:15}{check.asks}?\n{'':15}{check.costs}\n"


def _console(*, quiet: bool) -> Console:
    width = None if sys.stdout.isatty() else WIDTH
    return Console(quiet=quiet, width=width, highlight=False)
