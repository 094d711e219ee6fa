"""Whether answers tell their token counts, and whether those can be true."""

from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Pair:
    """The counts of a streamed and a whole answer to one prompt."""

    streamed: Usage
    whole: Usage


async def run(scene: Scene, model: str) -> Finding:
    """Ask every door the same, streamed and not, and compare the counts."""
    question = Question(model=model, messages=scene.prompts.small(), max_tokens=TOKENS)

    async def look(door: Door) -> Pair | str:
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
    # The router's two answers may come from two replicas: where these are asked too, they tell more.
    pairs = {door: found for door, found in asked.good if isinstance(found, Pair)}
    telling = {door: pair for door, pair in pairs.items() if door is not scene.main or len(pairs) == 1}
    prompts = {door.name: pair.streamed.prompt for door, pair in telling.items()}
    for door, pair in telling.items():
        if pair.streamed.prompt != pair.whole.prompt:
            told = f"{pair.streamed.prompt} tokens streamed and {pair.whole.prompt} otherwise"
            return failed(f"{door.name}: the same prompt has {told}")
    if len(set(prompts.values())) > 1:
        return failed(
            f"the same messages have {by_value(prompts)} tokens",
            "the replicas differ in chat template or tokenizer: start them with the same",
            prompt_tokens=prompts,
        )
    counted = next(iter(prompts.values()))
    return passed(f"present at {addresses(doors)}, {counted} prompt tokens everywhere")


def _judged(door: Door, streamed: Usage | None, whole: Usage | None) -> Pair | str:
    """Both usages, or what is wrong with them."""
    if streamed is None:
        return f"{door.name}: a stream with stream_options.include_usage has no usage"
    if whole is None:
        return f"{door.name}: a whole answer has no usage"
    for usage in (streamed, whole):
        sums = usage.total in {0, usage.prompt + usage.completion}
        if usage.prompt < 1 or not 0 <= usage.completion <= TOKENS or not sums:
            return f"{door.name}: {usage.prompt} + {usage.completion} = {usage.total} tokens cannot be true"
    return Pair(streamed, whole)


CHECK = Check(
    name="usage",
    asks="do answers tell their token counts, and can they be true",
    costs="2 requests of up to 8 tokens at each of R + 1 addresses",
    run=run,
)
