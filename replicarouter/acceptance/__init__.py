"""Acceptance of a fleet: does it do what its users will rely on, through the router and at each replica.

`discover` finds out what is there, `inspect` runs `CHECKS`, `report` says what came of it.
"""

from replicarouter.acceptance.check import Check
from replicarouter.acceptance.checks import CHECKS
from replicarouter.acceptance.discovery import Place, discover
from replicarouter.acceptance.door import open_session
from replicarouter.acceptance.errors import CheckError
from replicarouter.acceptance.finding import Finding, Result, Status
from replicarouter.acceptance.run import chosen, inspect
from replicarouter.acceptance.scene import Scene, Wishes

__all__ = [
    "CHECKS",
    "Check",
    "CheckError",
    "Finding",
    "Place",
    "Result",
    "Scene",
    "Status",
    "Wishes",
    "chosen",
    "discover",
    "inspect",
    "open_session",
]
