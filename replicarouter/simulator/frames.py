"""The bytes of a streamed answer: each SSE event in one HTTP chunk, as vLLM 0.32.0 shapes them.
What does not change from token to token, and from stream to stream, is built once."""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, islice
from typing import NamedTuple

import orjson

from replicarouter import __version__
from replicarouter.simulator.api import GenerationRequest
from replicarouter.simulator.plans import Plan
from replicarouter.simulator.tokens import ESCAPED_TOKENS, walk
from replicarouter.simulator.usage import Usage

FINGERPRINT = f"replicarouter-engine-{__version__}"

_EVENT_END = b"}\n\n"
_ROLE = b'"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]'
_CALL = b'"delta":{"content":null,"tool_calls":[{%b"index":0,"function":{'
_CALL_CLOSE = b'"}}]}'


class _Run(NamedTuple):
    """Events that differ by a text alone: what stands before it in the JSON, what closes the delta,
    and the texts: `length` of the cycle `texts` from place `start`."""

    before: bytes
    close: bytes
    texts: Sequence[bytes]
    start: int
    length: int


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
        return chain.from_iterable(self._parts(index, plan))

    def closing(self, usage: Usage) -> list[bytes]:
        """The frames after the last choice has ended; the last of them ends the response."""
        done = self._done()
        if not self._request.include_usage:
            return [done]
        totals = b'],"usage":' + orjson.dumps(usage.as_json())
        return [self._frame(self._start + totals + self._signature + _EVENT_END), done]

    def comment(self) -> bytes:
        """What keeps a stream alive that has nothing to say yet."""
        return self._frame(b": keep-alive\n\n")

    def failing(self, event: bytes) -> bytes:
        """The end of a stream that fails: this event, and what follows the last of any stream."""
        return self._frame(event) + self._done()

    def aborting(self, choices: int, usage: Usage) -> list[bytes]:
        """The frames of a stream whose sequences the engine has aborted: the end of each, and of all."""
        abort = b',"logprobs":null,"finish_reason":"abort","stop_reason":null,"token_ids":null}]'
        empty = b'"delta":{"content":""}' if self._request.chat else b'"text":""'
        ends = [
            self._frame(self._start + b'{"index":%d,' % index + empty + abort + _EVENT_END)
            for index in range(choices)
        ]
        return [*ends, *self.closing(usage)]

    def _done(self) -> bytes:
        return self._frame(b"data: [DONE]\n\n") + (b"0\r\n\r\n" if self._chunked else b"")

    def _parts(self, index: int, plan: Plan) -> Iterator[Iterable[bytes]]:
        head = self._start + b'{"index":%d,' % index
        prompt = self._request.prompt_of(index).tokens
        if self._request.chat:
            nulls = b',"prompt_token_ids":null,"prompt_text":null'
            role = head + _ROLE + self._usage_so_far(prompt, 0) + nulls
            yield (self._frame(role + _EVENT_END),)
        produced = 0
        for run in self._runs(plan):
            before, after = head + run.before, run.close + self._rest
            ends = produced + run.length == plan.tokens
            plain = run.length - ends
            if self._request.continuous_usage:
                texts = islice(walk(run.texts, run.start), plain)
                for number, text in enumerate(texts, produced + 1):
                    usage = self._usage_so_far(prompt, number)
                    yield (self._frame(before + text + after + usage + _EVENT_END),)
            else:
                yield islice(self._plain(run, before, after + _EVENT_END), plain)
            produced += run.length
            if ends:
                text = run.texts[(run.start + plain) % len(run.texts)]
                after = run.close + self._ending(plan) + self._usage_so_far(prompt, produced)
                yield (self._frame(before + text + after + _EVENT_END),)

    def _runs(self, plan: Plan) -> Iterator[_Run]:
        if plan.reasoning:
            before = b'"delta":{"reasoning":"'
            yield _Run(before, b'"}', ESCAPED_TOKENS, plan.seed, plan.reasoning)
        before, close = (b'"delta":{"content":"', b'"}') if self._request.chat else (b'"text":"', b'"')
        if plan.lead:
            lead = tuple(orjson.dumps(piece)[1:-1] for piece in plan.lead)
            yield _Run(before, close, lead, 0, len(lead))
        if plan.text:
            yield _Run(before, close, ESCAPED_TOKENS, plan.seed + plan.reasoning, plan.text)
        if plan.call:
            identity = b'"id":%b,"type":"function",' % orjson.dumps(call_id(self._answer_id))
            names = (orjson.dumps(plan.call.name)[1:-1],)
            yield _Run(_CALL % identity + b'"name":"', _CALL_CLOSE, names, 0, 1)
        if plan.call and plan.call.pieces:
            pieces = tuple(orjson.dumps(piece)[1:-1] for piece in plan.call.pieces)
            yield _Run(_CALL % b"" + b'"arguments":"', _CALL_CLOSE, pieces, 0, len(pieces))
        if plan.finish_reason == "tool_calls":
            yield _Run(b'"delta":{', b"}", (b"",), 0, 1)

    def _plain(self, run: _Run, before: bytes, after: bytes) -> Iterator[bytes]:
        """The frames of a run, without end; no bytecode runs between one and the next."""
        if not self._chunked:
            return (before + text + after for text in walk(run.texts, run.start))
        fixed = len(before) + len(after)
        if run.texts is ESCAPED_TOKENS:
            halves = _halves_of_tokens(fixed, after)
        else:
            halves = _halves(run.texts, fixed, after)
        return map(before.join, walk(halves, run.start))

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
        return b"%x\r\n%b\r\n" % (len(payload), payload) if self._chunked else payload


Half = tuple[bytes, bytes]
"""What comes before and after the part of a chunk that a stream's events have in common."""


def _halves(texts: Iterable[bytes], fixed: int, after: bytes) -> list[Half]:
    """Chunks of `fixed` bytes beside the text: their size lines, and their ends from the text on."""
    return [(b"%x\r\n" % (fixed + len(text)), text + after + b"\r\n") for text in texts]


@lru_cache(maxsize=32)
def _halves_of_tokens(fixed: int, after: bytes) -> list[Half]:
    return _halves(ESCAPED_TOKENS, fixed, after)
