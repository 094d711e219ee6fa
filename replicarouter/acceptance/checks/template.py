"""Whether every replica makes the same tokens of a conversation."""

import orjson

from replicarouter.acceptance.check import Check
from replicarouter.acceptance.door import Door
from replicarouter.acceptance.finding import Finding, failed, passed, skipped
from replicarouter.acceptance.pace import at_each
from replicarouter.acceptance.scene import Scene
from replicarouter.acceptance.words import by_value

_CURE = (
    "start all replicas with the same --chat-template, tokenizer and model revision: other tokens are"
    " another prompt, and no prefix cache knows them"
)
_CONVERSATION = (
    {"role": "system", "content": "You answer in one sentence."},
    {"role": "user", "content": "Why is the sky blue? Zażółć 東京 🙂"},
    {"role": "assistant", "content": "Because air scatters blue light the most."},
    {"role": "user", "content": "And at night?"},
)


async def run(scene: Scene, model: str) -> Finding:
    """Have each replica tokenize the same messages."""
    if (reason := scene.too_few(model)) is not None:
        return reason
    body = orjson.dumps({"model": model, "messages": _CONVERSATION})
    doors = [replica.door for replica in scene.serving(model)]

    async def tokens_at(door: Door) -> object:
        document = (await door.post("/tokenize", body)).document()
        return document.get("tokens") or document.get("count")

    asked = await at_each(doors, tokens_at)
    found = {door.name: tokens for door, tokens in asked.good if tokens}
    if len(found) < 2:
        return skipped(
            "it cannot be compared: the engines do not tokenize messages (vLLM's /tokenize does); `usage`"
            " compares the lengths of prompts"
        )
    lengths = {name: len(one) if isinstance(one, list) else one for name, one in found.items()}
    if len(set(map(repr, found.values()))) > 1:  # lists have no place in a set
        same_length = len(set(map(str, lengths.values()))) == 1
        told = "the tokens, not their number" if same_length else by_value(lengths) + " tokens"
        return failed(f"the replicas differ for the same messages: {told}", _CURE, tokens=lengths)
    unable = len(doors) - len(found)
    note = f"; {unable} cannot tell" if unable else ""
    return passed(f"the same {next(iter(lengths.values()))} tokens at {len(found)} replicas{note}")


CHECK = Check(
    name="template",
    asks="do all replicas make the same tokens of a conversation",
    costs="R requests to /tokenize, no tokens generated",
    run=run,
)
