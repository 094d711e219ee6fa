"""Whether the replicas serve the same models, from the same weights, and the router lists them all."""

from replicarouter.acceptance.check import Check
from replicarouter.acceptance.finding import Finding, failed, passed, warned, worst
from replicarouter.acceptance.scene import Scene
from replicarouter.acceptance.words import counted

_SAME = "start all replicas of a pool with the same --model and --served-model-name"


async def run(scene: Scene, _model: str) -> Finding:
    """Compare the lists of models."""
    findings = [failed(replica.problem, replica.cure) for replica in scene.replicas if replica.problem]
    if scene.unlisted and scene.router:
        findings.append(failed(scene.unlisted, "see `replicarouter replicas list`"))
    findings += _unknown(scene) + _unlisted(scene) + _weights(scene)
    if findings:
        return worst(findings)
    return _pools(scene)


def _unknown(scene: Scene) -> list[Finding]:
    return [
        failed(
            f"{model} is not served; served: {', '.join(scene.names) or 'nothing'}", "give another --model"
        )
        for model in scene.models
        if model not in scene.names
    ]


def _unlisted(scene: Scene) -> list[Finding]:
    """Models that a replica lists and the router does not."""
    listed = scene.names
    return [
        failed(
            f"{replica.name} lists {model} and {scene.main.name} does not",
            "see the setting `models` of the replica, and its state in `replicarouter replicas list`",
        )
        for replica in scene.replicas
        for model in replica.models
        if model not in listed
    ]


def _weights(scene: Scene) -> list[Finding]:
    """Models that stand for other weights at one replica than at another."""
    roots: dict[str, dict[str, str]] = {}
    for replica in scene.replicas:
        for card in replica.cards:
            if root := card.get("root"):
                roots.setdefault(str(card["id"]), {}).setdefault(str(root), replica.name)
    return [
        failed(f"{model} is " + " and ".join(f"{root} at {name}" for root, name in found.items()), _SAME)
        for model, found in roots.items()
        if len(found) > 1
    ]


def _pools(scene: Scene) -> Finding:
    groups: dict[tuple[str, ...], int] = {}
    for replica in scene.replicas:
        served = tuple(sorted(replica.models))
        groups[served] = groups.get(served, 0) + 1
    told = "; ".join(
        f"{', '.join(served)} at {counted(number, 'replica')}" for served, number in groups.items()
    )
    if scene.blind is not None:
        return passed(f"the router lists {', '.join(scene.names)}; {scene.unseen}")
    if len(groups) > 1:
        return warned(f"the replicas are of {len(groups)} kinds: {told}", f"if one pool is meant, {_SAME}")
    return passed(told if scene.router else ", ".join(scene.models), models=scene.models)


CHECK = Check(
    name="models",
    asks="do all replicas serve the same models, from the same weights",
    costs="no tokens",
    run=run,
    fleet=True,
)
