"""What a running router says of its replicas, and waiting until it says so."""

from typing import Any

from tests.fakes.replica import FakeReplica
from tests.fakes.running import RunningRouter
from tests.fakes.wire import eventually


async def row(router: RunningRouter, replica: FakeReplica) -> dict[str, Any]:
    """How the router describes a replica."""
    return (await router.ledger()).replica(replica)


async def until(router: RunningRouter, replica: FakeReplica, state: str) -> None:
    """Wait until a replica is in this state."""

    async def reached() -> bool:
        return str((await row(router, replica))["state"]) == state

    await eventually(reached, f"{replica.name} is {state}")


async def probed(replica: FakeReplica, times: int) -> None:
    """Wait until it has been asked for its health so many times more."""
    before = len(replica.probed)

    def asked() -> int:
        return [probe.target for probe in replica.probed[before:]].count("/health")

    await eventually(lambda: asked() >= times, f"{replica.name} is probed {times} times")
