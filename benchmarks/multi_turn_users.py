"""Users in conversations: every turn carries the whole history, with the answers that were really given."""

import asyncio
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import orjson

from replicarouter.loadgen.client import Answer, Client
from replicarouter.loadgen.report import Tally
from replicarouter.loadgen.workload import CHARACTERS_PER_TOKEN, http_request
from replicarouter.protocol.framing import Dechunker

HOST = "127.0.0.1"
REPLICA_FIELD, AFFINITY_FIELD = b"x-replicarouter-replica", b"x-replicarouter-affinity"

_PROSE = """
 the of and to in is it that for on with as at by from this one two each all some more less other
 answer question list queue block model letter garden winter morning harbour window kitchen paper
 reads writes waits holds keeps sends takes gives finds counts moves grows ends begins returns
 long short full empty early late first last near far open quiet steady small wide narrow
"""
_WORDS = _PROSE.split()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What conversations are like. Lengths are in tokens, those of prompts approximate; times in seconds.

    `system_tokens` open every conversation with the same words, `user_tokens` are said by the user in each
    turn, an answer has `answer_tokens`. `think` is the mean time between an answer and the next question,
    and conversations begin spread evenly over `spread`. `says_who`: each request names its conversation.
    """

    model: str = "sim"
    system_tokens: int = 2000
    user_tokens: int = 400
    answer_tokens: int = 64
    think: float = 0.0
    spread: float = 0.0
    says_who: bool = False
    seed: int = 0

    def prose(self, name: str, tokens: int) -> str:
        """About so many tokens of words that depend on the name alone."""
        source = Random(f"{self.seed}/{name}")
        left = tokens * CHARACTERS_PER_TOKEN
        words = [f"{name}:"]
        left -= len(words[0])
        while left > 0:
            words.append(source.choice(_WORDS))
            left -= len(words[-1]) + 1
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn as its user saw it: `number` from 1 on, `replica` and `affinity` as the router's receipts
    name them, `failure` None for a whole answer. `cached_tokens`, of `prompt_tokens`, are as the engine
    told in `usage`; 0 where it did not."""

    conversation: int
    number: int
    replica: str
    affinity: str
    failure: str | None
    ttft: float | None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


@dataclass(slots=True)
class Conversation:
    """One user with one history. It ends with its first failure, as its next turn would not be the same."""

    number: int
    shape: Shape
    client: Client
    turns: list[Turn] = field(default_factory=list)
    messages: list[dict[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.messages.append(
            {"role": "system", "content": self.shape.prose("system", self.shape.system_tokens)}
        )

    @property
    def over(self) -> bool:
        """It has failed."""
        return bool(self.turns) and self.turns[-1].failure is not None

    def body(self) -> dict[str, Any]:
        """The request of the next turn; the question joins the history."""
        name = f"{self.number}-{len(self.turns) + 1}"
        self.messages.append({"role": "user", "content": self.shape.prose(name, self.shape.user_tokens)})
        body: dict[str, Any] = {
            "model": self.shape.model,
            "messages": self.messages,
            "max_tokens": self.shape.answer_tokens,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        return {**body, "user": f"conversation-{self.number}"} if self.shape.says_who else body

    async def take_turn(self, host: str) -> None:
        """Ask and hear the answer out."""
        answer = await self.client.ask(http_request(self.body(), host=host))
        turn, said = read_turn(self.number, len(self.turns) + 1, answer)
        self.turns.append(turn)
        self.messages.append({"role": "assistant", "content": said})


class Crowd:
    """Conversations with the server on `port`, which is `host`; `tally` has the gaps between their events."""

    def __init__(self, port: int, count: int, shape: Shape) -> None:
        self.tally = Tally()
        self.host = f"{HOST}:{port}"
        self._shape = shape
        self._source = Random(shape.seed)
        self.conversations = [
            Conversation(
                number, shape, Client(HOST, port, tally=self.tally, clock=time.perf_counter, keep=True)
            )
            for number in range(count)
        ]

    @property
    def turns(self) -> list[Turn]:
        """All turns that have been taken."""
        return [turn for one in self.conversations for turn in one.turns]

    async def go_on(self, turns: int) -> float:
        """Take so many more turns in every conversation, and wait for the last of all; the seconds."""
        began = time.perf_counter()
        await together([self._converse(one, turns) for one in self.conversations])
        return time.perf_counter() - began

    def close(self) -> None:
        """Close all connections."""
        for one in self.conversations:
            one.client.close()

    async def _converse(self, one: Conversation, turns: int) -> None:
        await asyncio.sleep(self._source.uniform(0, self._shape.spread))
        for number in range(turns):
            if number and self._shape.think:
                await asyncio.sleep(self._source.expovariate(1 / self._shape.think))
            if one.over:
                return
            await one.take_turn(self.host)


async def together(tasks: Sequence[Awaitable[None]]) -> None:
    """Run them all at the same time; the first exception ends the others, too."""
    async with asyncio.TaskGroup() as group:
        for one in tasks:
            group.create_task(_awaited(one))


async def _awaited(one: Awaitable[None]) -> None:
    await one


def read_turn(conversation: int, number: int, answer: Answer) -> tuple[Turn, str]:
    """What an answer tells of its turn, and the words of the answer."""
    said, usage = read_events(Dechunker().feed(bytes(answer.body)))
    details = usage.get("prompt_tokens_details") or {}
    turn = Turn(
        conversation=conversation,
        number=number,
        replica=field_of(answer.head, REPLICA_FIELD),
        affinity=field_of(answer.head, AFFINITY_FIELD),
        failure=answer.failure,
        ttft=answer.ttft,
        prompt_tokens=usage.get("prompt_tokens") or 0,
        cached_tokens=details.get("cached_tokens") or 0,
        completion_tokens=usage.get("completion_tokens") or 0,
    )
    return turn, said


def field_of(head: bytes, name: bytes) -> str:
    """The value of a field of a response head; empty without one."""
    for line in head.split(b"\r\n")[1:]:
        given, _, value = line.partition(b":")
        if given.lower() == name:
            return value.strip().decode("latin-1")
    return ""


def read_events(body: bytes) -> tuple[str, dict[str, Any]]:
    """The text of a streamed chat answer, and its usage."""
    pieces: list[str] = []
    usage: dict[str, Any] = {}
    for event in body.split(b"\n\n"):
        if not event.startswith(b"data: {"):
            continue
        document = orjson.loads(event[len(b"data: ") :])
        usage = document.get("usage") or usage
        pieces += [choice["delta"].get("content") or "" for choice in document.get("choices", ())]
    return "".join(pieces), usage
