"""Whether the engines of a pool are of one version."""

from replicarouter.acceptance.check import Check
from replicarouter.acceptance.errors import CheckError
from replicarouter.acceptance.finding import Finding, failed, passed, skipped
from replicarouter.acceptance.pace import together
from replicarouter.acceptance.scene import Replica, Scene
from replicarouter.acceptance.words import by_value, counted


async def run(scene: Scene, model: str) -> Finding:
    """Compare what `/version` says."""
    if (reason := scene.too_few(model)) is not None:
        return reason
    replicas = scene.serving(model)
    versions = await together(_version(replica) for replica in replicas)
    known = {
        replica.name: version
        for replica, version in zip(replicas, versions, strict=True)
        if isinstance(version, str) and version
    }
    if not known:
        return skipped("no engine tells its version")
    if len(set(known.values())) > 1:
        return failed(
            f"the engines differ: {by_value(known)}",
            "bring all replicas of a model to one version: answers and speeds differ between versions",
            versions=known,
        )
    silent = len(replicas) - len(known)
    told = f"{next(iter(known.values()))} at {counted(len(known), 'replica')}"
    return passed(told + (f"; {silent} do not tell" if silent else ""), versions=known)


async def _version(replica: Replica) -> str:
    try:
        version = (await replica.door.get("/version")).document().get("version")
    except CheckError:
        version = None
    return version if isinstance(version, str) and version else replica.version


CHECK = Check(
    name="version",
    asks="do the engines of a model have the same version",
    costs="no tokens",
    run=run,
)
