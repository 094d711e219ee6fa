"""Whether a streamed answer says the same as a whole one, in well-formed events."""

from replicarouter.acceptance.answers import Answer
from replicarouter.acceptance.chat import Question, ask
from replicarouter.acceptance.check import Check
from replicarouter.acceptance.door import Door
from replicarouter.acceptance.finding import Finding, Status, failed, passed, warned, worst
from replicarouter.acceptance.pace import at_each
from replicarouter.acceptance.scene import Scene
from replicarouter.acceptance.words import addresses

TOKENS = 32
_CURE = (
    "compare the two answers by hand; a proxy that rewrites streams, or a parser flag (--reasoning-parser,"
    " --tool-call-parser) with a fault in its streaming half, are the usual reasons"
)


async def run(scene: Scene, model: str) -> Finding:
    """Ask the same twice at every door, at temperature 0; where the answers differ, twice again."""

    async def look(door: Door) -> Finding:
        question = Question(model=model, messages=scene.prompts.parrot(), max_tokens=TOKENS)
        finding, same = await _compare(door, question)
        if same:
            return finding
        _, again = await _compare(door, question)
        if again:
            return warned(
                f"{door.name}: streamed and whole answer differed once and were the same then",
                "other work in a batch may round differently; expect no exact repetition under load",
            )
        return finding

    doors = scene.doors(model)
    asked = await at_each(doors, look)
    findings = [failed(problem) for problem in asked.problems] + [one for _, one in asked.good]
    bad = worst(findings)
    if bad.status is not Status.PASS:
        return bad
    return passed(f"the same text and finish reason at {addresses(doors)}, events well-formed to [DONE]")


async def _compare(door: Door, question: Question) -> tuple[Finding, bool]:
    """What is wrong with a pair of answers, and whether they say the same."""
    whole = await ask(door, question)
    streamed = await ask(door, question, stream=True)
    if streamed.faults:
        faults = "; ".join(streamed.faults)
        return failed(f"{door.name}: the stream is malformed: {faults}", "is a proxy between?"), True
    if whole.said != streamed.said:
        return failed(f"{door.name}: {_difference(whole, streamed)}", _CURE), False
    return passed(f"{door.name} is fine"), True


def _difference(whole: Answer, streamed: Answer) -> str:
    if whole.text != streamed.text:
        return f"the streamed text is {_short(streamed.text)}, the whole one {_short(whole.text)}"
    if whole.finish != streamed.finish:
        return f"the stream finishes with {streamed.finish}, the whole answer with {whole.finish}"
    return f"the streamed reasoning is {_short(streamed.reasoning)}, the whole one {_short(whole.reasoning)}"


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:40]}…")


CHECK = Check(
    name="streaming",
    asks="does a stream say the same as a whole answer at temperature 0",
    costs="2 requests of up to 32 tokens at each of R + 1 addresses, twice if they differ",
    run=run,
)
