"""Whether the router and every replica say that they can serve."""

from replicarouter.acceptance.check import Check
from replicarouter.acceptance.door import Door
from replicarouter.acceptance.finding import Finding, failed, passed, worst
from replicarouter.acceptance.pace import at_each
from replicarouter.acceptance.scene import Replica, Scene
from replicarouter.acceptance.words import START, addresses

_READY = {"", "ready"}


async def run(scene: Scene, _model: str) -> Finding:
    """Ask `/health` everywhere, `/ready` of the router, and what the router believes of its replicas."""
    doors = [scene.main, *(replica.door for replica in scene.replicas if replica.door is not scene.main)]
    asked = await at_each(doors, _health)
    findings = [failed(problem, START) for problem in asked.problems]
    findings += [failed(text, "look into its log") for _, text in asked.good if text]
    if scene.router:
        findings += await _ready(scene)
        # Of one that does not answer the state tells nothing more.
        answering = {door for door, _ in asked.good}
        findings += [
            _state(replica)
            for replica in scene.replicas
            if replica.state not in _READY and replica.door in answering
        ]
    return worst(findings) if findings else passed(f"/health is fine at {addresses(doors)}")


async def _health(door: Door) -> str:
    reply = await door.get("/health")
    return "" if reply.status == 200 else f"{door.name} answers {reply.status} to /health"


async def _ready(scene: Scene) -> list[Finding]:
    reply = await scene.main.get("/ready")
    if reply.status == 200:
        return []
    return [failed(f"the router answers {reply.status} to /ready", "see `replicarouter replicas list`")]


def _state(replica: Replica) -> Finding:
    reason = f": {replica.why}" if replica.why else ""
    return failed(f"{replica.name} is {replica.state}{reason}", "see `replicarouter replicas list`")


CHECK = Check(
    name="health",
    asks="do the router and every replica say that they can serve",
    costs="no tokens",
    run=run,
    fleet=True,
)
