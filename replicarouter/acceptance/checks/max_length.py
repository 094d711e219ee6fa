"""Whether a prompt that fits one replica fits the others."""

from replicarouter.acceptance.check import Check
from replicarouter.acceptance.finding import Finding, failed, passed, skipped
from replicarouter.acceptance.scene import Scene
from replicarouter.acceptance.words import by_value, counted


async def run(scene: Scene, model: str) -> Finding:
    """Compare `max_model_len` of the model cards."""
    if (reason := scene.too_few(model)) is not None:
        return reason
    known = {
        replica.name: length
        for replica in scene.serving(model)
        if (length := replica.max_length(model)) is not None
    }
    if not known:
        return skipped("no engine tells it in its model card (vLLM and SGLang do)")
    if len(set(known.values())) > 1:
        return failed(
            f"the replicas differ: {by_value(known)} tokens",
            "start all replicas of a model with the same --max-model-len: else a long prompt succeeds or"
            " fails by chance",
            lengths=known,
        )
    return passed(f"{next(iter(known.values()))} tokens at {counted(len(known), 'replica')}", lengths=known)


CHECK = Check(
    name="max-length",
    asks="do the replicas of a model take prompts of the same length",
    costs="no tokens",
    run=run,
)
