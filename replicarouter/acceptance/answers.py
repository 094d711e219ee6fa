"""What a chat answer says, streamed or not, for every engine's spelling of it. No I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from replicarouter.acceptance.errors import Unreadable
from replicarouter.acceptance.reply import Reply, Streamed, reason_in

REASONING = ("reasoning", "reasoning_content")
"""Where engines put what a model thinks: vLLM since 0.12, and the others (and vLLM before)."""

Json = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Usage:
    """The token counts of one answer; `cached` is None where the engine does not say."""

    prompt: int
    completion: int
    total: int
    cached: int | None


@dataclass(slots=True)
class ToolCall:
    """A call as it was made; `arguments` should be JSON."""

    name: str = ""
    arguments: str = ""


@dataclass(slots=True)
class Answer:
    """One choice. Times are seconds on one clock and of streams only: `first_at` of the first content of
    any kind, `last_at` of the last, `text_at` of the first text; `pieces` are the contents that came."""

    reply: Reply
    text: str = ""
    reasoning: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    finish: str | None = None
    usage: Usage | None = None
    asked_at: float = 0.0
    first_at: float | None = None
    text_at: float | None = None
    last_at: float = 0.0
    ended_at: float = 0.0
    pieces: int = 0
    faults: Sequence[str] = ()

    @property
    def ttft(self) -> float | None:
        """Seconds to the first content of any kind; None without any."""
        return None if self.first_at is None else self.first_at - self.asked_at

    def began_after(self, moment: float) -> bool:
        """Whether its first content came later than that; without any it never began."""
        return self.first_at is not None and self.first_at > moment

    @property
    def mean_gap(self) -> float | None:
        """Mean seconds between two contents; None of fewer. A read may bring several at once, so single gaps
        tell of the network more than of the engine."""
        if self.first_at is None or self.pieces < 2:
            return None
        return (self.last_at - self.first_at) / (self.pieces - 1)

    @property
    def said(self) -> tuple[str, str, str | None]:
        """What must be the same whatever way the answer came."""
        return self.reasoning, self.text, self.finish


def read_whole(reply: Reply) -> Answer:
    """The answer in a JSON document; raises `Refused` or `Unreadable`."""
    document = reply.document()
    answer = Answer(reply)
    choice = _first_choice(document)
    if choice is None:
        raise Unreadable(f"{reply.place} answers without a choice")
    _add(answer, _object(choice, "message"))
    answer.finish = _text(choice, "finish_reason") or None
    answer.usage = _usage(document)
    return answer


def read_stream(streamed: Streamed) -> Answer:
    """The answer in a stream; raises `Refused`, or `Unreadable` for an error that stands in its events."""
    reply = streamed.reply
    reply.must_be_ok()
    answer = Answer(
        reply, asked_at=streamed.asked_at, ended_at=streamed.ended_at, faults=tuple(streamed.faults)
    )
    for event in streamed.events:
        document = event.document()
        if not isinstance(document, dict):
            continue
        if document.get("error"):
            raise Unreadable(f"{reply.place} ends its stream with an error: {reason_in(event.data)}")
        answer.usage = _usage(document) or answer.usage
        choice = _first_choice(document)
        if choice is None:
            continue
        answer.finish = _text(choice, "finish_reason") or answer.finish
        if not _add(answer, _object(choice, "delta")):
            continue
        if answer.first_at is None:
            answer.first_at = event.at
        answer.pieces += 1
        answer.last_at = event.at
        if answer.text and answer.text_at is None:
            answer.text_at = event.at
    return answer


def _add(answer: Answer, said: Json) -> bool:
    """Add a message or a delta; whether it had any content."""
    text = _text(said, "content")
    thought = next((found for name in REASONING if (found := _text(said, name))), "")
    answer.text += text
    answer.reasoning += thought
    calls = said.get("tool_calls")
    for number, part in enumerate(calls if isinstance(calls, list) else ()):
        if isinstance(part, dict):
            _add_call(answer, part, number)
    return bool(text or thought or calls)


def _add_call(answer: Answer, part: Json, number: int) -> None:
    index = part.get("index")
    place = index if isinstance(index, int) and 0 <= index < 64 else number
    while len(answer.calls) <= place:
        answer.calls.append(ToolCall())
    function = _object(part, "function")
    answer.calls[place].name += _text(function, "name")
    answer.calls[place].arguments += _text(function, "arguments")


def _usage(document: Json) -> Usage | None:
    usage = document.get("usage")
    if not isinstance(usage, dict):
        return None
    cached = _object(usage, "prompt_tokens_details").get("cached_tokens")
    return Usage(
        prompt=_count(usage, "prompt_tokens"),
        completion=_count(usage, "completion_tokens"),
        total=_count(usage, "total_tokens"),
        cached=cached if isinstance(cached, int) else None,
    )


def _first_choice(document: Json) -> Json | None:
    choices = document.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else None


def _object(holder: Json, name: str) -> Json:
    value = holder.get(name)
    return value if isinstance(value, dict) else {}


def _text(holder: Json, name: str) -> str:
    value = holder.get(name)
    return value if isinstance(value, str) else ""


def _count(holder: Json, name: str) -> int:
    value = holder.get(name)
    return value if isinstance(value, int) else 0
