"""The record of one client request: what it asked for, where it is, and how it ended."""

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from replicarouter.errors import RouterError
from replicarouter.protocol.traceparent import UNTRACED


class Stage(IntEnum):
    """Where an accepted, unfinished request is. The stages with a replica come first: they index its row."""

    CONNECTING = 0
    SENT = 1
    STREAMING = 2
    RECEIVING = 3
    QUEUED = 4

    @property
    def label(self) -> str:
        """The name in metrics and answers."""
        return self.name.lower()


_RECEIVING = Stage.RECEIVING
"""Looked up once: on the class of an enumeration that takes a while."""

OTHER = "other"
"""The label of an endpoint or model that the router does not serve."""

OK = "ok"
CLIENT_GONE = "client_gone"
UPSTREAM_ERROR = "upstream_error"
UNSETTLED = "unsettled"
"""An exchange begins unsettled: success must be said, never assumed."""


class PastAttempt(NamedTuple):
    """An attempt that brought no answer: where, why, and when it was leased, sent (0: was not) and over."""

    replica: str
    reason: str
    leased_at: float
    sent_at: float
    ended_at: float


class Exchange:
    """One request with everything that happened to it. Times are seconds on the router's clock.

    `client_id` is the request id the client sees, `upstream_id` the one its replica sees. `caller` is
    whose request it is, for the fair order of the queue, and `peer` the address it came from; `priority` 0
    is the most urgent. `past` are the attempts before the one that the other fields tell of.
    `uploaded_at`: when the last byte of a body came that was passed on while it arrived.
    `last_byte_at`: when the replica's last byte came, or the client took bytes again after a pause. It and
    `bytes_out` are of the last `refresh` while a stream is relayed.
    `commented_at`: when a comment of server-sent events came, `commented_after`: when the last byte before
    it and its like. `held`: no byte can come now, because the client takes nothing, or has not sent its
    body yet.
    `asked_model` is what the client called the model, `model` what is told of it everywhere.
    `policy` is the one that chose its replica, `affinity` how it came to it.
    A time of 0 means: has not happened. With slots, because an object with this many attributes (over 30)
    is else slow: Python gives each one a dictionary of its own. And no dataclass: one that is made of so many
    keywords and defaults takes four times as long as these lines.
    """

    __slots__ = (
        *("method", "path", "endpoint", "accepted_at", "client_id", "upstream_id", "caller", "peer"),
        *("priority", "trace", "past", "model", "asked_model", "replica", "stage", "received_at"),
        *("uploaded_at", "leased_at", "sent_at", "head_at", "first_content_at", "first_answer_at"),
        *("last_byte_at", "commented_at", "commented_after", "held", "reasoned", "ended_at", "status"),
        *("bytes_in", "bytes_out", "outcome", "prompt_tokens", "cached_tokens", "completion_tokens"),
        *("attempts", "policy", "affinity", "in_band_error", "in_band_busy", "given_up", "interrupted"),
        *("on_interrupt", "on_refresh"),
    )

    def __init__(
        self,
        method: str,
        path: str,
        endpoint: str,
        accepted_at: float,
        client_id: str = "",
        upstream_id: str = "",
    ) -> None:
        self.method = method
        self.path = path
        self.endpoint = endpoint
        self.accepted_at = accepted_at
        self.client_id = client_id
        self.upstream_id = upstream_id
        self.caller = ""
        self.peer = ""
        self.priority = 0
        self.trace = UNTRACED
        self.past: tuple[PastAttempt, ...] = ()
        self.model = ""
        self.asked_model = ""
        self.replica = ""
        self.stage: Stage = _RECEIVING
        self.received_at = 0.0
        self.uploaded_at = 0.0
        self.leased_at = 0.0
        self.sent_at = 0.0
        self.head_at = 0.0
        self.first_content_at = 0.0
        self.first_answer_at = 0.0
        self.last_byte_at = 0.0
        self.commented_at = 0.0
        self.commented_after = 0.0
        self.held = False
        self.reasoned = False
        self.ended_at = 0.0
        self.status = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.outcome = UNSETTLED
        self.prompt_tokens = 0
        self.cached_tokens: int | None = None
        self.completion_tokens = 0
        self.attempts = 0
        self.policy = ""
        self.affinity = "none"
        self.in_band_error = False
        self.in_band_busy = False
        self.given_up = False
        self.interrupted: RouterError | None = None
        self.on_interrupt: Callable[[], bool] | None = None
        self.on_refresh: Callable[[], None] | None = None

    def refresh(self) -> None:
        """Bring `last_byte_at` and `bytes_out` up to date: the relay of a stream keeps them while it runs."""
        if self.on_refresh is not None:
            self.on_refresh()

    @property
    def last_word_at(self) -> float:
        """When the last byte came that the engine must have had a part in: the server in front of it sends
        comments by itself, also while its engine is frozen."""
        # `refresh`, without the call: every request that ends asks this.
        if self.on_refresh is not None:
            self.on_refresh()
        return self.commented_after if self.commented_at == self.last_byte_at else self.last_byte_at

    def note_comment(self, now: float) -> None:
        """Nothing but a comment came; `last_byte_at` is still that of the byte before."""
        if self.commented_at != self.last_byte_at:
            self.commented_after = self.last_byte_at
        self.commented_at = now

    def note_attempt(self, reason: str, now: float) -> None:
        """The attempt that the fields tell of has failed, and others may follow."""
        attempt = PastAttempt(self.replica, reason, self.leased_at, self.sent_at, now)
        self.past = (*self.past, attempt)

    def intervals(self) -> list[tuple[str, float, float]]:
        """What an ended request did from its beginning to its end, without a gap: name, begin and end.

        `receive`, `queue` (until it had its first replica), `retry` (until it had the last one, if that was
        another attempt), `connect`, `head` (until the head of the answer came) and `stream`.
        """
        marks = [("receive", self.accepted_at)]
        if self.received_at:
            marks.append(("queue", self.received_at))
        first = self.past[0].leased_at if self.past else self.leased_at
        over = False
        if self.past:
            marks.append(("retry", first))
            over = len(self.past) == self.attempts and not self.head_at
        if self.leased_at and not over:
            marks.append(("connect", self.leased_at))
            if self.sent_at:
                marks.append(("head", self.sent_at))
            if self.head_at:
                marks.append(("stream", self.head_at))
        ends = [begin for _, begin in marks[1:]] + [self.ended_at]
        return [(name, begin, end) for (name, begin), end in zip(marks, ends, strict=True)]

    def left(self) -> None:
        """Its client has left: that is how it ends, unless its answer was whole."""
        if self.outcome == UNSETTLED:
            self.outcome = CLIENT_GONE

    def interrupt(self, error: RouterError) -> bool:
        """End this request from outside with `error`, whatever it is doing; False when it has ended."""
        if self.on_interrupt is None or not self.on_interrupt():
            return False
        self.interrupted = self.interrupted or error
        return True
