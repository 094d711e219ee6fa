"""Whether all replicas give the same answer to a question that has but one."""

from collections import Counter

from replicarouter.acceptance.chat import Question, ask
from replicarouter.acceptance.check import Check
from replicarouter.acceptance.door import Door
from replicarouter.acceptance.finding import Finding, failed, passed, warned
from replicarouter.acceptance.pace import at_each
from replicarouter.acceptance.scene import Scene
from replicarouter.acceptance.words import names, several

TOKENS = 24
_CURE = "compare weights, quantization, dtype, chat template and engine version of these and the others"


async def run(scene: Scene, model: str) -> Finding:
    """Ask every replica the same at temperature 0; if they differ, another question decides."""
    if (reason := scene.too_few(model)) is not None:
        return reason
    odd, problems = await _odd_ones(scene, model)
    if problems:
        return failed(several(problems))
    if not odd:
        return passed(f"{len(scene.serving(model))} replicas give the same answer")
    again, _ = await _odd_ones(scene, model)
    if again:
        return failed(f"at temperature 0 another answer comes from {names(again)}", _CURE, odd=again)
    return warned(
        f"another answer came from {names(odd)} to one question of two",
        "machines may round differently; if it is often, " + _CURE,
    )


async def _odd_ones(scene: Scene, model: str) -> tuple[list[str], tuple[str, ...]]:
    """The replicas that do not say what most say, and what went wrong."""
    question = Question(model=model, messages=scene.prompts.parrot(), max_tokens=TOKENS)

    async def said(door: Door) -> tuple[str, str, str | None]:
        return (await ask(door, question)).said

    asked = await at_each([replica.door for replica in scene.serving(model)], said)
    if asked.problems or not asked.good:
        return [], asked.problems
    (usual, _), *_ = Counter(answer for _, answer in asked.good).most_common(1)
    return [door.name for door, answer in asked.good if answer != usual], ()


CHECK = Check(
    name="same-answers",
    asks="do all replicas give the same answer at temperature 0",
    costs="R requests of up to 24 tokens, twice if they differ",
    run=run,
)
