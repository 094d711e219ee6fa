"""`replicarouter bench`: measurement campaigns, each with flags of its own."""

import argparse

from replicarouter.cli import bench_replay

NAME = "bench"
HELP = "measurement campaigns"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the campaigns, of which there is one so far."""
    campaigns = parser.add_subparsers(metavar="CAMPAIGN", title="campaigns", required=True)
    bench_replay.declare(campaigns.add_parser("replay", help="compare policies in virtual time"))


def run(arguments: argparse.Namespace) -> int:
    """Run the chosen campaign; CommandFailed when it cannot be run."""
    status: int = arguments.run_campaign(arguments)
    return status
