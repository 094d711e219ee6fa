"""A scripted chat engine that does one thing wrong: everything it does is a field of `Manners`."""

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.fakes.message import LAST_CHUNK
from tests.fakes.replica import FOR_EVER, SSE_HEAD, Connection, FakeReplica, Probes, Received, event, sized

MODEL = "m1"
_DENIED = sized(b'{"error":"Unauthorized"}', status="401 Unauthorized")
_SECRET = re.compile(r"The secret word is (\w+)\.")


@dataclass(slots=True)
class Manners:
    """How an engine behaves; as they stand, all is well."""

    text: str = "harbour lantern"
    streamed_text: str | None = None
    finish: str = "stop"
    reasoning: str = ""
    usage: bool = True
    prompt_tokens: int = 9
    cached_tokens: int | None = 8
    tools: str = "call"  # or "ignore", "refuse", "garble"
    done: bool = True
    finds: bool = True
    aborts: bool = True
    page: bool = True
    hits: bool = True
    version: str = "0.32.0"
    length: int = 8192
    root: str = "/models/one"
    template: int = 0  # added to each token id; None of them with -1
    any_model: bool = False
    error_shape: bool = True
    model: str | None = MODEL
    locked: bool = False  # nobody has the key to its list of models
    key: str = ""  # wanted of all who ask for anything under /v1
    owner: str = "vllm"
    streamed_finish: str | None = None
    whims: int = 0  # answers that begin with another word
    broken: bool = False
    cut: bool = False
    pace: float = 0.0  # seconds a stream takes
    slots: int = 0  # streams at a time; 0: no limit
    counts: bool = False  # the prompt's words as its tokens
    delay: float = 0.0  # seconds before a stream's first word


class ScriptedProbes(Probes):
    """What the engine says of itself."""

    def __init__(self, manners: Manners) -> None:
        super().__init__()
        self.manners = manners
        self.running = 0
        self.heard: list[Received] = []
        self.strange_page = False
        self.prefix_hits = 0
        self.answering.set()

    def denies(self, received: Received) -> bool:
        """Whether it wants a key that did not come."""
        key = self.manners.key
        return bool(key) and received.head.get("authorization") != f"Bearer {key}"

    def answer(self, path: str) -> bytes:
        manners = self.manners
        if path == "/version":
            return sized(json.dumps({"version": manners.version}).encode())
        if path == "/v1/models" and (manners.locked or self.denies(self.heard[-1])):
            return _DENIED
        if path == "/metrics" and not manners.page:
            return sized(b'{"detail":"Not Found"}', status="404 Not Found")
        self.gauges = {
            "vllm:num_requests_running": float(self.running),
            "vllm:num_preemptions_total": 0.0,
            "vllm:prefix_cache_queries_total": 0.0,
            "vllm:iteration_tokens_total_count": 0.0,
        }
        if manners.hits:
            self.gauges["vllm:prefix_cache_hits_total"] = float(self.prefix_hits)
        self.models = [
            {
                "id": manners.model,
                "owned_by": manners.owner,
                "root": manners.root,
                "max_model_len": manners.length or None,
            }
        ]
        if path == "/metrics" and self.strange_page:
            return sized(b"# TYPE strange gauge\nstrange 1\n")
        return super().answer(path)


class Scripted(FakeReplica):
    """An engine on a real socket, with these manners."""

    def __init__(self, name: str = "one", settings: dict[str, Any] | None = None, **manners: Any) -> None:
        super().__init__(self._serve_script, name=name, **(settings or {}))
        self._room: asyncio.Semaphore | None = None
        self.manners = Manners(**manners)
        self.own = ScriptedProbes(self.manners)
        self.probes = self.own
        self.own.heard = self.probed

    @property
    def url(self) -> str:
        return str(self.settings["url"])

    async def _serve_script(self, received: Received, connection: Connection) -> None:
        asked = json.loads(received.body)
        if self.own.denies(received):
            await connection.send(_DENIED)
        elif received.target == "/tokenize":
            await connection.send(self._tokens(asked))
        elif (refusal := self._refusal(asked)) is not None:
            await connection.send(refusal)
        elif asked.get("stream"):
            await self._stream(asked, connection)
        else:
            await connection.send(sized(json.dumps(self._document(asked)).encode()))

    def _tokens(self, asked: dict[str, Any]) -> bytes:
        if self.manners.template < 0:
            return sized(b'{"detail":"Not Found"}', status="404 Not Found")
        ids = [ord(letter) + self.manners.template for letter in asked["messages"][0]["content"]]
        return sized(json.dumps({"count": len(ids), "tokens": ids}).encode())

    def _refusal(self, asked: dict[str, Any]) -> bytes | None:
        if self.manners.broken:
            return sized(b'{"detail":"engine on fire"}', status="500 Internal Server Error")
        if asked["model"] != self.manners.model and not self.manners.any_model:
            error: object = {"message": "no such model", "type": "NotFoundError", "param": None, "code": 404}
            body = {"error": error} if self.manners.error_shape else {"detail": "no"}
            return sized(json.dumps(body).encode(), status="404 Not Found")
        if asked.get("tools") and self.manners.tools == "refuse":
            error = {"message": "no tool parser", "type": "BadRequestError", "param": None, "code": 400}
            return sized(json.dumps({"error": error}).encode(), status="400 Bad Request")
        return None

    def _text(self, asked: dict[str, Any]) -> str:
        prompt = str(asked["messages"][-1]["content"])
        hidden = _SECRET.search(prompt)
        if hidden and self.manners.finds:
            return hidden[1]
        if self.manners.whims:
            self.manners.whims -= 1
            return f"well, {self.manners.text}"
        return self.manners.text

    def _usage(self, asked: dict[str, Any]) -> dict[str, Any]:
        manners = self.manners
        tokens = len(str(asked["messages"]).split()) if manners.counts else manners.prompt_tokens
        details = None if manners.cached_tokens is None else {"cached_tokens": manners.cached_tokens}
        return {
            "prompt_tokens": tokens,
            "completion_tokens": 2,
            "total_tokens": tokens + 2,
            "prompt_tokens_details": details,
        }

    def _call(self, asked: dict[str, Any]) -> list[dict[str, Any]]:
        if asked.get("tool_choice") in (None, "auto") or self.manners.tools == "ignore":
            return []
        arguments = {"call": '{"city": "Paris"}', "garble": '{"city": ', "stray": '{"town": 7}'}[
            self.manners.tools
        ]
        return [{"index": 0, "id": "c1", "function": {"name": "get_weather", "arguments": arguments}}]

    def _document(self, asked: dict[str, Any]) -> dict[str, Any]:
        calls = self._call(asked)
        message = {"role": "assistant", "content": self._text(asked), "reasoning": self.manners.reasoning}
        finish = "tool_calls" if calls else self.manners.finish
        choice = {"index": 0, "message": {**message, "tool_calls": calls}, "finish_reason": finish}
        usage = {"usage": self._usage(asked)} if self.manners.usage else {}
        return {"object": "chat.completion", "choices": [choice], **usage}

    def _events(self, asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield {"role": "assistant", "content": ""}
        if self.manners.reasoning:
            yield {"reasoning": self.manners.reasoning}
        whole = self._text(asked)
        text = whole if self.manners.streamed_text is None else self.manners.streamed_text
        yield {"content": text[:4]}
        yield {"content": text[4:]}
        if calls := self._call(asked):
            yield {"tool_calls": calls}

    async def _stream(self, asked: dict[str, Any], connection: Connection) -> None:
        await connection.send(SSE_HEAD)
        if self._room is None:
            self._room = asyncio.Semaphore(self.manners.slots or 1000)
        async with self._room:
            await self._generate(asked, connection)

    async def _generate(self, asked: dict[str, Any], connection: Connection) -> None:
        await asyncio.sleep(self.manners.delay)
        for delta in self._events(asked):
            await connection.send(_chunk({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}))
        if asked["max_tokens"] > 1000:
            await self._go_on(connection)
            return
        if self.manners.pace:
            await asyncio.sleep(self.manners.pace)
        if self.manners.cut:
            connection.wire.close()
            return
        finish = self.manners.streamed_finish or self.manners.finish
        finish = "tool_calls" if self._call(asked) else finish
        await connection.send(_chunk({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}))
        if self.manners.usage:
            await connection.send(_chunk({"choices": [], "usage": self._usage(asked)}))
        self.own.prefix_hits += 1
        await connection.send((event("[DONE]") if self.manners.done else b"") + LAST_CHUNK)

    async def _go_on(self, connection: Connection) -> None:
        """A long answer: it runs until its client leaves, or for ever."""
        self.own.running += 1
        await connection.wire.gone(FOR_EVER)
        if not self.manners.aborts:
            await asyncio.sleep(FOR_EVER)
        self.own.running -= 1


def _chunk(document: dict[str, Any]) -> bytes:
    return event(json.dumps({"object": "chat.completion.chunk", **document}))
