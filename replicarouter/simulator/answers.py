"""Answers under way: they turn the tokens of sequences into the bytes of a response. No sockets. A
client that reads slowly costs a count: frames are made only when they can be written."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from replicarouter.simulator.api import GenerationRequest
from replicarouter.simulator.documents import completion_document
from replicarouter.simulator.frames import StreamFrames
from replicarouter.simulator.plans import cut_short
from replicarouter.simulator.sequences import Listener, Sequence
from replicarouter.simulator.usage import Usage


class Answer:
    """One request's answer. Its `sequences` tell it their tokens; `open` of them have not ended.
    While it is `paused` it writes no tokens."""

    def __init__(self, request: GenerationRequest, listeners: list[Listener]) -> None:
        self._request = request
        self.open = len(listeners)
        self._choices = len(request.plans) // len(request.prompts)  # of each prompt
        self.paused = False
        prompts = map(request.prompt_of, range(len(listeners)))
        self.sequences = tuple(
            Sequence(
                prompt_tokens=prompt.tokens,
                limit=plan.tokens,
                listener=listener,
                finish_reason=plan.engine_reason,
                final_hashes=prompt.with_reply(plan),
            )
            for prompt, plan, listener in zip(prompts, request.plans, listeners, strict=True)
        )

    def resume(self) -> None:
        """The connection takes bytes again."""
        self.paused = False

    def usage(self) -> Usage:
        """Token counts so far. A prompt counts once, however many choices answer it."""
        prompts = self._request.prompts
        cached = sum(sequence.cached_tokens for sequence in self.sequences[:: self._choices])
        return Usage(
            prompt=sum(self._request.prompt_tokens),
            cached=cached,
            created=sum(len(prompt.hashes) * prompt.block_size for prompt in prompts) - cached,
            completion=sum(sequence.produced for sequence in self.sequences),
            reasoning=sum(plan.reasoning for plan in self._request.plans),
        )


class WholeAnswer(Answer):
    """An answer in one JSON document, given to `send` when all sequences have ended."""

    def __init__(
        self,
        request: GenerationRequest,
        *,
        model: str,
        answer_id: str,
        created: int,
        send: Callable[[bytes], None],
    ) -> None:
        super().__init__(request, [self] * len(request.plans))
        self._model = model
        self._answer_id = answer_id
        self._created = created
        self._send = send

    def token(self) -> None:
        """Nothing is sent before the end."""

    def finished(self) -> None:
        """One sequence has ended."""
        self.open -= 1
        if not self.open:
            self._send(self._document(self._request))

    def aborted(self) -> bytes:
        """The document when the engine has aborted the sequences: what there is of each."""
        plans = tuple(
            cut_short(plan, sequence.produced)
            for plan, sequence in zip(self._request.plans, self.sequences, strict=True)
        )
        return self._document(replace(self._request, plans=plans))

    def _document(self, request: GenerationRequest) -> bytes:
        return completion_document(
            request,
            model=self._model,
            answer_id=self._answer_id,
            created=self._created,
            usage=self.usage(),
        )


class StreamedAnswer(Answer):
    """An answer in SSE events. `write` takes each of them as it comes, and may set `paused` meanwhile
    to have no more until `resume`; `ended` is called after the last."""

    def __init__(
        self,
        request: GenerationRequest,
        frames: StreamFrames,
        *,
        write: Callable[[bytes], None],
        ended: Callable[[], None],
    ) -> None:
        self.write = write
        self._frames = frames
        self._ended = ended
        self._feeds = [
            _Feed(self, frames.choice(index, plan), owed=1 if request.chat else 0)
            for index, plan in enumerate(request.plans)
        ]
        super().__init__(request, list(self._feeds))

    def resume(self) -> None:
        """Write the frames owed, as long as the connection takes them."""
        super().resume()
        for feed in self._feeds:
            feed.flush()
        self.close_if_done()

    @property
    def begun(self) -> bool:
        """It has a token."""
        return any(sequence.produced for sequence in self.sequences)

    def comment(self) -> None:
        """Write a comment, which keeps the stream alive, unless the connection takes nothing now."""
        if not self.paused:
            self.write(self._frames.comment())

    def failing(self, event: bytes) -> bytes:
        """The end of the stream when the engine fails: this SSE event, and what closes any stream."""
        return self._frames.failing(event)

    def aborted(self) -> bytes:
        """The end of the stream when the engine has aborted its sequences."""
        return b"".join(self._frames.aborting(len(self.sequences), self.usage()))

    def close_if_done(self) -> None:
        """Write the end of the stream once every token has been written."""
        if self.open or self.paused:
            return
        for frame in self._frames.closing(self.usage()):
            self.write(frame)
        self._ended()


class _Feed:
    """One choice of a streamed answer. `owed` frames can be written and have not been: at first those
    that come before its first token."""

    __slots__ = ("_answer", "_frames", "owed")

    def __init__(self, answer: StreamedAnswer, frames: Iterator[bytes], owed: int) -> None:
        self._answer = answer
        self._frames = frames
        self.owed = owed

    def token(self) -> None:
        """Write the token's frame, or owe it."""
        answer = self._answer
        if self.owed or answer.paused:
            self.owed += 1
            self.flush()
        else:
            answer.write(next(self._frames))

    def flush(self) -> None:
        """Write what is owed until the connection takes no more."""
        answer = self._answer
        while self.owed and not answer.paused:
            self.owed -= 1
            answer.write(next(self._frames))

    def finished(self) -> None:
        """The choice has all its tokens."""
        self._answer.open -= 1
        self._answer.close_if_done()
