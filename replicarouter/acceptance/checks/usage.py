"""Whether answers tell their token counts, and whether those can be true."""

from replicarouter.acceptance.answers import Usage
from replicarouter.acceptance.chat import Question, ask
from replicarouter.acceptance.check import Check
from replicarouter.acceptance.door import Door
from replicarouter.acceptance.finding import Finding, failed, passed
from replicarouter.acceptance.pace import at_each
from replicarouter.acceptance.scene import Scene
from replicarouter.acceptance.words import addresses, by_value, several

TOKENS = 8
_CURE = (
    "upgrade the engine, or remove what drops the chunk behind the last choice: without `usage` nobody can"
    " count tokens"
)


async def run(scene: Scene, model: str) -> Finding:
    """Ask every door the same, streamed and not, and compare the counts."""
    question = Question(model=model, messages=scene.prompts.small(), max_tokens=TOKENS)

    async def look(door: Door) -> Usage | str:
        streamed = (await ask(door, question, stream=True)).usage
        whole = (await ask(door, question)).usage
        return _judged(door, streamed, whole)

    doors = scene.doors(model)
    asked = await at_each(doors, look)
    if asked.problems:
        return failed(several(asked.problems))
    problems = [found for _, found in asked.good if isinstance(found, str)]
    if problems:
        return failed(several(problems), _CURE)
    prompts = {door.name: found.prompt for door, found in asked.good if isinstance(found, Usage)}
    if len(set(prompts.values())) > 1:
        return failed(
            f"the same messages have {by_value(prompts)} tokens",
            "the replicas differ in chat template or tokenizer: start them with the same",
            prompt_tokens=prompts,
        )
    counted = next(iter(prompts.values()))
    return passed(f"present at {addresses(doors)}, {counted} prompt tokens everywhere")


def _judged(door: Door, streamed: Usage | None, whole: Usage | None) -> Usage | str:
    """The usage, or what is wrong with it."""
    if streamed is None:
        return f"{door.name}: a stream with stream_options.include_usage has no usage"
    if whole is None:
        return f"{door.name}: a whole answer has no usage"
    for usage in (streamed, whole):
        sums = usage.total in {0, usage.prompt + usage.completion}
        if usage.prompt < 1 or not 0 <= usage.completion <= TOKENS or not sums:
            return f"{door.name}: {usage.prompt} + {usage.completion} = {usage.total} tokens cannot be true"
    if streamed.prompt != whole.prompt:
        return (
            f"{door.name}: the same prompt has {streamed.prompt} tokens streamed and {whole.prompt} otherwise"
        )
    return streamed


CHECK = Check(
    name="usage",
    asks="do answers tell their token counts, and can they be true",
    costs="2 requests of up to 8 tokens at each of R + 1 addresses",
    run=run,
)
