"""`replicarouter demo`: simulated users, router and replicas, and where every request is."""

import argparse
import sys

import uvloop

from replicarouter.cli import CommandFailed
from replicarouter.cli.startup import raise_descriptor_limit
from replicarouter.cli.values import count, seconds, whole
from replicarouter.demo.options import DemoFailed, DemoOptions
from replicarouter.demo.run import Demo
from replicarouter.settings import POLICY_NAMES
from replicarouter.simulator import DEFAULT_PROFILE, PROFILES

NAME = "demo"
HELP = "watch simulated users, router and replicas at work"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.description = (
        "Simulated replicas, the router and streaming users, each a process on loopback; no model and "
        "no GPU are needed. A table shows every second where the requests are, and a summary says in "
        "the end what limited them. Try it with --connector-limit 100, a common default of HTTP clients."
    )
    flag = parser.add_argument
    flag("--users", type=count, default=256, metavar="N", help="users who stream (default %(default)s)")
    flag("--replicas", type=count, default=8, metavar="N", help="simulated replicas (default %(default)s)")
    flag(
        "--policy",
        default="least-outstanding",
        choices=POLICY_NAMES,
        help="which replica gets the next request (default %(default)s)",
    )
    flag(
        "--connector-limit",
        type=whole,
        default=0,
        metavar="N",
        help="most connections from the router to the replicas in all; 0: no limit (default)",
    )
    flag(
        "--profile",
        default=DEFAULT_PROFILE,
        choices=sorted(PROFILES),
        help="whose step times the replicas keep (default %(default)s)",
    )
    flag("--seconds", type=seconds, metavar="N", help="stop after N seconds (default: at Ctrl-C)")


def run(arguments: argparse.Namespace) -> int:
    """Run the demonstration and print its summary; CommandFailed when a child cannot start or dies."""
    raise_descriptor_limit()
    options = DemoOptions(
        users=arguments.users,
        replicas=arguments.replicas,
        policy=arguments.policy,
        connector_limit=arguments.connector_limit,
        profile=arguments.profile,
        seconds=arguments.seconds,
    )
    try:
        summary = uvloop.run(Demo(options).run())
    except DemoFailed as error:
        raise CommandFailed(str(error)) from None
    sys.stdout.write(summary)
    return 0
