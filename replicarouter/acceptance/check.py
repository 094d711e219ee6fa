"""The contract of a check: one question about a fleet, answered by one finding."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from replicarouter.acceptance.finding import Finding
from replicarouter.acceptance.scene import Scene

Run = Callable[[Scene, str], Awaitable[Finding]]
"""Look at a model of a scene ("" for the fleet as a whole). May raise `CheckError`, which fails the check."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check. `asks` says what it wants to know, `costs` what it sends: R is the number of replicas, N the
    concurrency. It runs once for each model, or once for the `fleet`."""

    name: str
    asks: str
    costs: str
    run: Run
    fleet: bool = False
