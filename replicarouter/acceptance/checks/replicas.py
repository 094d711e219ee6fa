"""Whether the replicas behind the router are known, so that each can be asked past it."""

from replicarouter.acceptance.check import Check
from replicarouter.acceptance.finding import Finding, Status, failed, passed, skipped
from replicarouter.acceptance.scene import Scene
from replicarouter.acceptance.words import counted


async def run(scene: Scene, _model: str) -> Finding:
    """Tell what discovery found. Without its replicas a router is only half checked, which must not pass."""
    if not scene.router:
        return skipped("no router is here")
    blind = scene.blind
    if blind is not None and blind.status is Status.FAIL:
        cure = f"{blind.cure}; or --replica URL for each; or --router-only, if that will do"
        return failed(f"they are not known: {blind.why}", cure)
    if blind is not None:
        return blind
    if not scene.replicas:
        return failed("the router has none", "`replicarouter replicas add URL`")
    known = len(scene.replicas)
    return passed(f"{counted(known, 'replica')} {'is' if known == 1 else 'are'} known")


CHECK = Check(
    name="replicas",
    asks="are the replicas known, so that each can be asked past the router",
    costs="no tokens",
    run=run,
    fleet=True,
)
