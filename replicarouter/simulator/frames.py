"""The bytes of a streamed answer: each SSE event in one HTTP chunk, as vLLM 0.32.0 shapes them.
What does not change from token to token is built once; a token costs two concatenations."""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import orjson

from replicarouter import __version__
from replicarouter.simulator.api import GenerationRequest
from replicarouter.simulator.plans import Plan
from replicarouter.simulator.tokens import escaped_tokens
from replicarouter.simulator.usage import Usage

FINGERPRINT = f"replicarouter-engine-{__version__}"

_EVENT_END = b"}\n\n"
_ROLE = b'"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]'
_CALL = b'"delta":{"content":null,"tool_calls":[{%b"index":0,"function":{'
_CALL_CLOSE = b'"}}]}'


class _Run(NamedTuple):
    """Events that differ by a text alone: what stands before it, the texts, what closes the delta."""

    before: bytes
    texts: Iterator[bytes]
    length: int
    close: bytes


def call_id(answer_id: str) -> str:
    """The id of the tool call in the answer with this id."""
    return f"chatcmpl-tool-{answer_id.rpartition('-')[2]}"


class StreamFrames:
    """Frames of one answer. `created` is its Unix time in seconds; `chunked` its HTTP framing."""

    def __init__(
        self,
        request: GenerationRequest,
        *,
        model: str,
        answer_id: str,
        created: int,
        chunked: bool = True,
    ) -> None:
        self._request = request
        self._answer_id = answer_id
        self._chunked = chunked
        self._chunk_end = b"\r\n" if chunked else b""
        self._start = b'data: {"id":%b,"object":"%b","created":%d,"model":%b,"choices":[' % (
            orjson.dumps(answer_id),
            b"chat.completion.chunk" if request.chat else b"text_completion",
            created,
            orjson.dumps(model),
        )
        self._signature = b',"system_fingerprint":"%b"' % FINGERPRINT.encode()
        self._rest = b',"logprobs":null,"finish_reason":null,%b"token_ids":null}]' % (
            b"" if request.chat else b'"stop_reason":null,"prompt_token_ids":null,'
        )

    def choice(self, index: int, plan: Plan) -> Iterator[bytes]:
        """The frames of one choice: for chat first its role, then one for each token of the plan."""
        head = self._start + b'{"index":%d,' % index
        prompt = self._request.prompt_of(index)
        if self._request.chat:
            nulls = b',"prompt_token_ids":null,"prompt_text":null'
            yield self._frame(head + _ROLE + self._usage_so_far(prompt, 0) + nulls + _EVENT_END)
        produced = 0
        for run in self._runs(plan):
            before = head + run.before
            ends = produced + run.length == plan.tokens
            yield from self._run_frames(run, before, run.length - ends, prompt, produced)
            produced += run.length
            if ends:
                after = run.close + self._ending(plan) + self._usage_so_far(prompt, produced)
                yield self._frame(before + next(run.texts) + after + _EVENT_END)

    def closing(self, usage: Usage) -> list[bytes]:
        """The frames after the last choice has ended; the last of them ends the response."""
        done = self._frame(b"data: [DONE]\n\n") + (b"0\r\n\r\n" if self._chunked else b"")
        if not self._request.include_usage:
            return [done]
        totals = b'],"usage":' + orjson.dumps(usage.as_json())
        return [self._frame(self._start + totals + self._signature + _EVENT_END), done]

    def _runs(self, plan: Plan) -> Iterator[_Run]:
        texts = escaped_tokens(plan.seed, 0, plan.reasoning + plan.text)
        if plan.reasoning:
            yield _Run(b'"delta":{"reasoning":"', texts, plan.reasoning, b'"}')
        if plan.text and self._request.chat:
            yield _Run(b'"delta":{"content":"', texts, plan.text, b'"}')
        elif plan.text:
            yield _Run(b'"text":"', texts, plan.text, b'"')
        if plan.call:
            identity = b'"id":%b,"type":"function",' % orjson.dumps(call_id(self._answer_id))
            name = orjson.dumps(plan.call.name)[1:-1]
            yield _Run(_CALL % identity + b'"name":"', iter((name,)), 1, _CALL_CLOSE)
        if plan.call and plan.call.pieces:
            pieces = (orjson.dumps(piece)[1:-1] for piece in plan.call.pieces)
            yield _Run(_CALL % b"" + b'"arguments":"', pieces, len(plan.call.pieces), _CALL_CLOSE)
        if plan.finish_reason == "tool_calls":
            yield _Run(b'"delta":{', iter((b"",)), 1, b"}")

    def _run_frames(
        self, run: _Run, before: bytes, count: int, prompt: int, produced: int
    ) -> Iterator[bytes]:
        """Frames of the next `count` texts of a run, none of them the last of its choice."""
        texts = islice(run.texts, count)
        after = run.close + self._rest
        if self._request.continuous_usage:
            for number, text in enumerate(texts, produced + 1):
                usage = self._usage_so_far(prompt, number)
                yield self._frame(before + text + after + usage + _EVENT_END)
            return
        after += _EVENT_END
        fixed = len(before) + len(after)
        after += self._chunk_end
        openings: dict[int, bytes] = {}
        for text in texts:
            length = len(text)
            opening = openings.get(length)
            if opening is None:
                opening = openings[length] = self._size_line(fixed + length) + before
            yield opening + text + after

    def _ending(self, plan: Plan) -> bytes:
        """What follows the last delta of a choice."""
        ending = b',"logprobs":null,"finish_reason":"%b","stop_reason":null,%b"token_ids":null}]' % (
            plan.finish_reason.encode(),
            b"" if self._request.chat else b'"prompt_token_ids":null,',
        )
        return ending if self._request.include_usage else ending + self._signature

    def _usage_so_far(self, prompt: int, produced: int) -> bytes:
        if not self._request.continuous_usage:
            return b""
        return (
            b',"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d,'
            b'"completion_tokens_details":null}'
        ) % (prompt, prompt + produced, produced)

    def _frame(self, payload: bytes) -> bytes:
        return self._size_line(len(payload)) + payload + self._chunk_end

    def _size_line(self, length: int) -> bytes:
        return b"%x\r\n" % length if self._chunked else b""
