"""Whether a sentence hidden in a long prompt is found, whatever its depth and whichever replica reads."""

from dataclasses import dataclass, replace

from replicarouter.acceptance.answers import Answer
from replicarouter.acceptance.chat import Question, ask
from replicarouter.acceptance.check import Check
from replicarouter.acceptance.door import Door
from replicarouter.acceptance.errors import CheckError
from replicarouter.acceptance.finding import Finding, failed, passed, skipped
from replicarouter.acceptance.pace import together
from replicarouter.acceptance.prompts import CHARACTERS_PER_TOKEN, QUESTION, user
from replicarouter.acceptance.scene import Scene
from replicarouter.acceptance.words import several

DEFAULT = 2000
"""Tokens of the prompt when nobody asked for a length and the model takes as many."""

TOKENS = 96
"""Generated at most: an answer is one word, but some models must think first."""

SPARE = TOKENS + 256
"""Tokens that are left free beside the prompt: the answer, the question, and an estimate that is off."""

DEPTHS = (0.1, 0.5, 0.9)
_SAMPLE = 2000  # characters


@dataclass(frozen=True, slots=True)
class Search:
    """One prompt: where it is sent, what is hidden in it and how deep; `found` and `tokens` are the end."""

    door: Door
    depth: float
    secret: str
    text: str
    found: bool = False
    tokens: int = 0
    replica: str = ""


async def run(scene: Scene, model: str) -> Finding:
    """Hide a word at three depths for the main address and at one for each replica."""
    wanted, reason = _length(scene, model)
    if reason is not None:
        return reason
    size = int(wanted * await _characters_per_token(scene, model))
    doors = [*([scene.main] * len(DEPTHS)), *scene.doors(model)[1:]]
    searches = []
    for number, door in enumerate(doors):
        depth, secret = DEPTHS[number % len(DEPTHS)], scene.prompts.secret()
        text = f"{scene.prompts.haystack(size, secret, depth)}\n\n{QUESTION}"
        searches.append(Search(door, depth, secret, text))
    # One long prompt at a time at each address; a replica may have two, its own and one of the router's.
    groups = [[search for search in searches if search.door is door] for door in dict.fromkeys(doors)]
    rounds = await together(_search_all(model, group) for group in groups)
    problems = [str(one) for one in rounds if isinstance(one, CheckError)]
    done = [search for one in rounds if isinstance(one, list) for search in one]
    if problems:
        return failed(several(problems), _TOO_LONG)
    return await _judged(scene, model, done)


_TOO_LONG = "ask for fewer tokens (--needle), or see what the engine says of the length"


def _length(scene: Scene, model: str) -> tuple[int, Finding | None]:
    """How long the prompt is to be, or why there can be none."""
    most = scene.max_length(model)
    asked = scene.wishes.needle
    if most is None:
        return asked or DEFAULT, None
    if asked is None:
        wanted = min(DEFAULT, most - SPARE)
        return wanted, None if wanted > 0 else skipped(f"a context of {most} tokens is too short for it")
    if asked > most - SPARE:
        return 0, failed(
            f"{asked} tokens and an answer do not fit into the model's {most}",
            f"--needle {max(most - SPARE, 1)} at most, or start the engines with a larger --max-model-len",
        )
    return asked, None


async def _characters_per_token(scene: Scene, model: str) -> float:
    """How long filler's tokens are in this model's vocabulary, by the usage of a small request."""
    text = scene.prompts.filler(_SAMPLE)
    question = Question(model=model, messages=user(text), max_tokens=1, thinking=False)
    usage = (await ask(scene.main, question)).usage
    return len(text) / usage.prompt if usage is not None and usage.prompt else CHARACTERS_PER_TOKEN


async def _search_all(model: str, searches: list[Search]) -> list[Search]:
    return [await _search(model, search, search.door) for search in searches]


async def _search(model: str, search: Search, door: Door) -> Search:
    question = Question(model=model, messages=user(search.text), max_tokens=TOKENS, thinking=False)
    answer = await ask(door, question, stream=True)
    tokens = answer.usage.prompt if answer.usage else 0
    said = found(answer, search.secret)
    return replace(search, door=door, found=said, tokens=tokens, replica=answer.reply.replica)


def found(answer: Answer, secret: str) -> bool:
    """Whether the word was said, or thought."""
    return secret in f"{answer.text} {answer.reasoning}".lower().replace(" ", "")


async def _judged(scene: Scene, model: str, searches: list[Search]) -> Finding:
    tokens = max(search.tokens for search in searches)
    told = f"prompts of {tokens or 'unknown'} tokens"
    missed = [search for search in searches if not search.found]
    depths = sorted({search.depth for search in missed})
    figures = {"prompt_tokens": tokens, "missed": len(missed), "searches": len(searches)}
    if not missed:
        return passed(f"found in all {len(searches)} {told}", **figures)
    where = ", ".join(f"{depth:.0%}" for depth in depths)
    why = f"missed in {len(missed)} of {len(searches)} {told}, at depths {where}"
    return failed(f"{why}: {await _whose(scene, model, missed)}", _CURE, **figures)


_CURE = (
    "see --max-model-len, rope scaling and the KV cache's dtype against the model's card; a small model finds"
    " nothing: --skip needle"
)


async def _whose(scene: Scene, model: str, missed: list[Search]) -> str:
    """Whose fault it is: a prompt missed through the router is sent to its replica alone."""
    alone = [search.door.name for search in missed if search.door is not scene.main]
    if alone or not scene.router:
        return "the engines alone miss it: " + ", ".join(alone) if alone else "the engine misses it"
    doors = {replica.name: replica.door for replica in scene.serving(model)}
    search = missed[0]
    if search.replica not in doors:
        return "whose replica's fault it is cannot be told"
    again = await _search(model, search, doors[search.replica])
    if again.found:
        return f"{search.replica} alone finds it: something between changes the prompt or the answer"
    return f"{search.replica} alone misses it too"


CHECK = Check(
    name="needle",
    asks="is a sentence in a long prompt found",
    costs="R + 4 prompts of --needle tokens (2000, or what fits), up to 96 generated for each",
    run=run,
)
