"""Whether a request's id comes back, so that a client can find its request in the logs."""

from replicarouter.acceptance.chat import Question, ask
from replicarouter.acceptance.check import Check
from replicarouter.acceptance.finding import Finding, failed, passed, warned
from replicarouter.acceptance.scene import Scene


async def run(scene: Scene, model: str) -> Finding:
    """Send one, and look for it in the answer's head."""
    given = f"check-{scene.prompts.mark()}"
    question = Question(model=model, messages=scene.prompts.small(), max_tokens=1)
    answer = await ask(scene.main, question, headers={"X-Request-Id": given})
    came = answer.reply.headers.get("x-request-id")
    if came == given:
        return passed("X-Request-Id comes back as it was sent")
    told = "does not come back" if came is None else "comes back as another"
    if scene.router:
        return failed(f"X-Request-Id {told}", "does something between remove or replace it?")
    return warned(f"X-Request-Id {told}", "vLLM: --enable-request-id-headers; behind the router it does")


CHECK = Check(
    name="request-id",
    asks="does X-Request-Id come back",
    costs="1 request of 1 token",
    run=run,
)
