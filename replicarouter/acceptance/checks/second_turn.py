"""Whether the second turn of a conversation meets the replica that has its first in the cache."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from replicarouter.acceptance.answers import Answer
from replicarouter.acceptance.chat import Question, ask
from replicarouter.acceptance.check import Check
from replicarouter.acceptance.finding import Finding, Status, failed, passed, skipped, warned, worst
from replicarouter.acceptance.pages import RouterPage, sum_at_engines
from replicarouter.acceptance.prompts import Message, user
from replicarouter.acceptance.scene import Scene

CONVERSATIONS = 4
TOKENS = 24
CHARACTERS = 3000
"""Of the first message: several blocks of any engine's cache."""

STICKY = frozenset(("session", "prefix-hash", "prefix-cache"))
"""The policies that keep a conversation at its replica; `session` where a key is sent."""

_CACHE = "switch the prefix cache on (vLLM --enable-prefix-caching; SGLang without --disable-radix-cache)"
_SEEN = "vLLM --enable-prompt-tokens-details tells cached tokens with each answer"


@dataclass(frozen=True, slots=True)
class Conversation:
    """The answers of its two turns."""

    first: Answer
    second: Answer


async def run(scene: Scene, model: str) -> Finding:
    """Have conversations of two turns; all begin before any goes on."""
    policy = await _policy(scene, model) if scene.router else ""
    begun = []
    for _ in range(CONVERSATIONS):
        messages = user(f"{scene.prompts.filler(CHARACTERS)} What is this text about?")
        session = f"check-{scene.prompts.mark()}"
        begun.append((messages, session, await _turn(scene, model, messages, session)))
    before = await _hits(scene, model)
    # In reverse: with rotating replicas the same order would bring each turn to its replica by luck.
    conversations = []
    for messages, session, first in reversed(begun):
        more: list[Message] = [
            *messages,
            {"role": "assistant", "content": first.text or "It is about a text."},
            *user("And in one word?"),
        ]
        second = await _turn(scene, model, more, session)
        conversations.append(Conversation(first, second))
    after = await _hits(scene, model)
    hits = None if before is None or after is None else after - before
    cached = judge_cache([one.second for one in conversations], hits)
    alone = not scene.router or (scene.blind is None and len(scene.serving(model)) < 2)
    if alone:
        return cached
    return together_told(judge_place(conversations, policy), cached)


async def _turn(scene: Scene, model: str, messages: Sequence[Message], session: str) -> Answer:
    question = Question(model=model, messages=messages, max_tokens=TOKENS)
    return await ask(scene.main, question, stream=True, headers={"X-Session-Id": session})


async def _policy(scene: Scene, model: str) -> str:
    page = RouterPage(await scene.main.get("/metrics"))
    policies = {labels.get("model", ""): labels.get("policy", "") for labels, _ in page.series("policy_info")}
    return policies.get(model) or next(iter(policies.values()), "")


async def _hits(scene: Scene, model: str) -> float | None:
    """The prefix hits that the engines have counted so far; None if any of them does not count."""
    return await sum_at_engines(scene.serving(model), lambda page: page.reading.prefix_hits)


def judge_cache(seconds: Sequence[Answer], hits: float | None) -> Finding:
    """Whether second turns found their first in a cache: by their usage, else by the engines' counters."""
    told = [one.usage.cached for one in seconds if one.usage is not None and one.usage.cached is not None]
    if any(told):
        found = sum(1 for cached in told if cached)
        share = f"{found} of {len(seconds)} second turns find their first in the cache"
        prompts = sum(one.usage.prompt for one in seconds if one.usage is not None)
        figures = {"cached_tokens": sum(told), "prompt_tokens": prompts}
        if found == len(seconds):
            return passed(f"{share}, {sum(told)} of {prompts} prompt tokens", **figures)
        return failed(share, _CACHE, **figures)
    if hits and not told:
        return passed(f"the engines count {hits:.0f} prompt tokens found in their caches", prefix_hits=hits)
    if hits == 0 or told:
        return failed("no second turn finds its first in a cache", _CACHE)
    return skipped("no engine tells whether its cache was hit", _SEEN)


def judge_place(conversations: Sequence[Conversation], policy: str) -> Finding:
    """Whether second turns went where the first had gone."""
    pairs = [(one.first.reply.replica, one.second.reply.replica) for one in conversations]
    if not all(first and second for first, second in pairs):
        return skipped("which replica answers is not told", "set expose_replica: true to see it")
    same = sum(first == second for first, second in pairs)
    told = f"{same} of {len(pairs)} second turns meet the replica of the first"
    if policy and policy not in STICKY:
        chance = " (by chance)" if same else ""
        return warned(
            f"policy {policy} does not keep conversations together: {told}{chance}",
            "--policy prefix-hash, if they have several turns",
        )
    told += f" (policy {policy or 'unknown'})"
    if same == len(pairs):
        return passed(told)
    cure = "spill: other load was in the way, try again when it is quiet; rehash: replicas came or went;"
    cure += " none: no key was found, see policy_options.session_headers"
    if not policy:
        return warned(told, "--policy prefix-hash, if conversations have several turns")
    return failed(f"{told}: {_astray(conversations)}", cure)


def _astray(conversations: Sequence[Conversation]) -> str:
    """Why second turns went elsewhere, as the router says with its answers."""
    elsewhere = [one for one in conversations if one.first.reply.replica != one.second.reply.replica]
    reasons = Counter(one.second.reply.affinity for one in elsewhere)
    return ", ".join(f"{count} {reason}" for reason, count in reasons.items() if reason)


def together_told(place: Finding, cache: Finding) -> Finding:
    """One finding of both. A cold cache after a turn went elsewhere is the policy's doing, told already."""
    if place.status is Status.WARN and cache.status is Status.FAIL:
        return place
    if place.status is Status.SKIPPED and cache.status is Status.PASS:
        return passed(f"{cache.why}; {place.why}", **cache.figures)
    if place.status is Status.PASS and cache.status is Status.PASS:
        return passed(f"{place.why}; {cache.why}", **cache.figures)
    return worst([place, cache])


CHECK = Check(
    name="second-turn",
    asks="does the second turn of a conversation meet its replica and find its cache",
    costs="8 requests of about 800 prompt tokens and up to 24 generated",
    run=run,
)
