import json
from typing import Any

import pytest

from replicarouter.simulator.answers import Answer, StreamedAnswer, WholeAnswer
from replicarouter.simulator.api import Api, GenerationRequest
from replicarouter.simulator.fields import Fields
from replicarouter.simulator.frames import StreamFrames

API = Api("sim", 40_000)


def chat(**fields: Any) -> GenerationRequest:
    messages = [{"role": "user", "content": "Hello"}]
    return API.chat(Fields({"messages": messages, "stream": True, "max_tokens": 5, **fields}))


class Writer:
    """A connection that takes `room` more frames and then asks for a pause."""

    def __init__(self, request: GenerationRequest, room: int = 1_000_000) -> None:
        self.room = room
        self.frames: list[bytes] = []
        self.ended = 0
        self.answer = StreamedAnswer(
            request,
            StreamFrames(request, model="sim", answer_id="chatcmpl-a1", created=1),
            write=self.write,
            ended=self.end,
        )

    def write(self, frame: bytes) -> None:
        self.frames.append(frame)
        self.room -= 1
        if self.room <= 0:
            self.answer.paused = True

    def end(self) -> None:
        self.ended += 1

    def drain(self, room: int) -> None:
        self.room = room
        self.answer.resume()


def generate(answer: Answer, steps: int = 1_000_000) -> None:
    """Let each sequence of the answer have its next tokens, in turn."""
    for _ in range(steps):
        growing = [s for s in answer.sequences if s.produced < s.limit]
        if not growing:
            return
        for sequence in growing:
            sequence.base += 1
            sequence.listener.token()
        for sequence in growing:
            if sequence.produced == sequence.limit:
                sequence.listener.finished()


def test_each_token_is_written_as_it_comes() -> None:
    writer = Writer(chat())
    written = []
    for _ in range(5):
        generate(writer.answer, 1)
        written.append(len(writer.frames))
    assert written == [2, 3, 4, 5, 7], "the role comes with the first token, [DONE] with the last"
    assert writer.ended == 1


@pytest.mark.parametrize("room", range(1, 9))
def test_paused_stream_goes_on_where_it_stopped(room: int) -> None:
    whole = Writer(chat(stream_options={"include_usage": True}))
    generate(whole.answer)
    slow = Writer(chat(stream_options={"include_usage": True}), room)
    generate(slow.answer)
    while not slow.ended:
        assert slow.answer.paused
        slow.drain(room)
    assert slow.frames == whole.frames
    assert slow.ended == 1


def test_paused_stream_keeps_a_count_and_no_frames() -> None:
    writer = Writer(chat(max_tokens=30_000, ignore_eos=True), room=3)
    generate(writer.answer)
    assert len(writer.frames) == 3
    writer.drain(1_000_000)
    assert len(writer.frames) == 1 + 30_000 + 1
    assert writer.ended == 1


def test_stream_of_several_choices_ends_with_the_last() -> None:
    tools = [{"type": "function", "function": {"name": "clock"}}]
    request = chat(n=3, tools=tools, max_tokens=100)
    writer = Writer(request)
    generate(writer.answer)
    assert writer.ended == 1
    assert len(writer.frames) == 3 + sum(plan.tokens for plan in request.plans) + 1
    assert writer.answer.usage().completion == sum(plan.tokens for plan in request.plans)


def test_whole_answer_is_sent_once_all_choices_have_ended() -> None:
    request = chat(n=2, stream=False)
    sent: list[bytes] = []
    answer = WholeAnswer(request, model="sim", answer_id="chatcmpl-a1", created=1, send=sent.append)
    generate(answer, 4)
    assert not sent
    generate(answer)
    (document,) = sent
    usage = json.loads(document)["usage"]
    assert usage["completion_tokens"] == 10
    assert usage["prompt_tokens"] == request.prompt_tokens[0]


def test_prompts_count_once_each() -> None:
    request = API.completion(Fields({"prompt": ["a" * 8, "b" * 400], "n": 2, "max_tokens": 1}))
    answer = WholeAnswer(request, model="sim", answer_id="a", created=1, send=lambda _: None)
    for sequence in answer.sequences[2:]:
        sequence.cached_tokens = 32
    usage = answer.usage()
    assert (usage.prompt, usage.cached, usage.created) == (102, 32, 96 - 32)


@pytest.mark.parametrize("fields", [{}, {"reasoning_effort": "low"}, {"max_tokens": 2}], ids=str)
def test_streamed_and_whole_answers_say_the_same(fields: dict[str, Any]) -> None:
    """With a word to begin with, which a limit may cut."""
    messages = [{"role": "user", "content": "The secret word is marzipan. Which is it?"}]
    asked = {"messages": messages, "max_tokens": 300, **fields}
    writer = Writer(API.chat(Fields({**asked, "stream": True})))
    generate(writer.answer)
    events = [json.loads(line[6:]) for line in b"".join(writer.frames).split(b"\n") if line[:7] == b"data: {"]
    deltas = [choice["delta"] for event in events for choice in event["choices"]]
    sent: list[bytes] = []
    whole = WholeAnswer(
        API.chat(Fields(asked)), model="sim", answer_id="chatcmpl-a1", created=1, send=sent.append
    )
    generate(whole)
    message = json.loads(sent[0])["choices"][0]["message"]
    assert "".join(delta.get("content", "") for delta in deltas) == message["content"]
    assert "".join(delta.get("reasoning", "") for delta in deltas) == (message["reasoning"] or "")
    assert message["content"].startswith("marzipan. "[: 4 * asked["max_tokens"]])
