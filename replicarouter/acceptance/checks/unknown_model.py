"""Whether a model that nobody serves is refused as OpenAI's clients expect."""

from replicarouter.acceptance.chat import CHAT, Question
from replicarouter.acceptance.check import Check
from replicarouter.acceptance.finding import Finding, failed, passed, skipped, warned
from replicarouter.acceptance.reply import Reply
from replicarouter.acceptance.scene import Scene


async def run(scene: Scene, _model: str) -> Finding:
    """Ask for one."""
    name = f"no-such-model-{scene.prompts.mark()}"
    question = Question(model=name, messages=scene.prompts.small(), max_tokens=1)
    reply = await scene.main.post(CHAT, question.body(stream=False))
    if reply.status == 200 and not scene.router:
        return warned(
            "the engine serves whatever model is named",
            "a typing error will go unnoticed; a router refuses it",
        )
    if reply.status == 503 and scene.router and not scene.listed:
        return skipped("a router that knows no model yet refuses each with 503")
    if reply.status != 404:
        return failed(
            f"{reply.place} answers {reply.status}, not 404",
            "does something between rewrite errors? OpenAI's clients tell errors by their status",
        )
    if not _openai(reply):
        return failed("the 404 has no OpenAI error object", "does something between rewrite error bodies?")
    return passed("404 with an OpenAI error object")


def _openai(reply: Reply) -> bool:
    document = reply.json
    error = document.get("error") if isinstance(document, dict) else None
    return isinstance(error, dict) and isinstance(error.get("message"), str) and "type" in error


CHECK = Check(
    name="unknown-model",
    asks="is an unknown model refused with 404 and an OpenAI error",
    costs="1 request that generates nothing",
    run=run,
    fleet=True,
)
