"""Whether a model's thinking is kept apart from its answer, and so what "first token" means here."""

from enum import Enum

from replicarouter.acceptance.answers import Answer
from replicarouter.acceptance.chat import Question, ask
from replicarouter.acceptance.check import Check
from replicarouter.acceptance.door import Door
from replicarouter.acceptance.finding import Finding, failed, passed, warned
from replicarouter.acceptance.pace import at_each
from replicarouter.acceptance.prompts import user
from replicarouter.acceptance.scene import Scene
from replicarouter.acceptance.words import by_value, several
from replicarouter.words import seconds_text

TOKENS = 96
_MARKS = ("<think>", "</think>")
_PARSER = "start the engine with the --reasoning-parser of its model"


class Manner(Enum):
    """Where thinking is found."""

    APART = "in a field of its own"
    IN_TEXT = "in the text, between <think> marks"
    NONE = "nowhere"


async def run(scene: Scene, model: str) -> Finding:
    """Ask something worth thinking about, with thinking on where the template has a switch."""
    text = f"Note {scene.prompts.mark()}. A clock shows 14:50. Which time is it in 95 minutes?"
    question = Question(model=model, messages=user(text), max_tokens=TOKENS, thinking=True)

    async def look(door: Door) -> Answer:
        return await ask(door, question, stream=True)

    asked = await at_each(scene.doors(model), look)
    if asked.problems:
        return failed(several(asked.problems))
    manners = {door.name: manner(answer) for door, answer in asked.good}
    if len(set(manners.values())) > 1:
        told = by_value({name: one.value for name, one in manners.items()})
        return failed(f"thinking is found {told}", f"{_PARSER}, the same at all replicas")
    return _finding(manners[scene.main.name], asked.good[0][1])


def manner(answer: Answer) -> Manner:
    """Where an answer's thinking is. Templates may open the mark in the prompt, so either one counts."""
    if any(mark in answer.text for mark in _MARKS):
        return Manner.IN_TEXT
    return Manner.APART if answer.reasoning else Manner.NONE


def _finding(found: Manner, answer: Answer) -> Finding:
    figures = {"ttft": answer.ttft}
    if found is Manner.IN_TEXT:
        return warned(
            "thinking is left in the text, between <think> marks: clients show it, later turns carry it, and"
            " the first token is one of thinking",
            _PARSER,
            **figures,
        )
    if found is Manner.NONE:
        return passed("no thinking is seen: the first token is the first of the answer", **figures)
    if answer.text_at is None:
        return passed(
            f"kept apart: the first token ({seconds_text(answer.ttft)}) is one of thinking; the answer's"
            f" first comes after more than {TOKENS} tokens, so measure it by answer_ttft_seconds",
            **figures,
        )
    first_text = answer.text_at - answer.asked_at
    return passed(
        f"kept apart: first token after {seconds_text(answer.ttft)}, first of the answer after"
        f" {seconds_text(first_text)}",
        answer_ttft=first_text,
        **figures,
    )


CHECK = Check(
    name="reasoning",
    asks="is thinking kept apart from the answer",
    costs="1 request of up to 96 tokens at each of R + 1 addresses",
    run=run,
)
