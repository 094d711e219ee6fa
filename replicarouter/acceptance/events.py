"""Server-sent events out of bytes, and what is malformed in them. No I/O.

The format: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
"""

from dataclasses import dataclass, field

import orjson

DONE = b"[DONE]"
_FIELDS = (b"data", b"event", b"id", b"retry", b"")  # the empty name is that of a comment


@dataclass(frozen=True, slots=True)
class Event:
    """One event's data, and when its end came (seconds on the reader's clock)."""

    data: bytes
    at: float

    def document(self) -> object:
        """Its JSON; None when it is none."""
        try:
            return orjson.loads(self.data)
        except orjson.JSONDecodeError:
            return None


@dataclass(slots=True)
class EventReader:
    """Cuts a stream into events, however it was read. `faults` tells what no client should have to bear."""

    faults: list[str] = field(default_factory=list)
    _rest: bytes = b""
    _data: list[bytes] = field(default_factory=list)
    _done: bool = False

    def feed(self, data: bytes, at: float) -> list[Event]:
        """The events that end in `data`, which came at `at`."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        taken = (self._take(line.removesuffix(b"\r"), at) for line in lines)
        return [event for event in taken if event is not None]

    def end(self) -> None:
        """Nothing more comes."""
        if self._rest or self._data:
            self._fault("it ends inside an event")
        if not self._done:
            self._fault("it does not end with [DONE]")

    def _take(self, line: bytes, at: float) -> Event | None:
        if not line:
            if not self._data:
                return None
            event = Event(b"\n".join(self._data), at)
            self._data = []
            self._judge(event)
            return event
        name, _, value = line.partition(b":")
        if name not in _FIELDS:
            self._fault("a line is neither a field nor a comment")
        elif name == b"data":
            self._data.append(value.removeprefix(b" "))
        return None

    def _judge(self, event: Event) -> None:
        if self._done:
            self._fault("an event follows [DONE]")
        elif event.data == DONE:
            self._done = True
        elif not isinstance(event.document(), dict):
            self._fault("an event's data is no JSON object")

    def _fault(self, text: str) -> None:
        if text not in self.faults:
            self.faults.append(text)
