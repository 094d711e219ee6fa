"""What comes back from a door: a whole reply, or a stream of events. No I/O."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import orjson

from replicarouter.acceptance.errors import Refused, Unreadable
from replicarouter.acceptance.events import Event

_LONGEST_REASON = 200
"""Characters of an engine's message that are shown."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer of the door called `place`; `headers` have lower-case names."""

    place: str
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> object:
        """What its body says, whatever the status; None when that is no JSON."""
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return None

    def document(self) -> dict[str, object]:
        """The JSON object in its body; raises `Refused` for other statuses than 200, or `Unreadable`."""
        self.must_be_ok()
        document = self.json
        if not isinstance(document, dict):
            raise Unreadable(f"{self.place} answers something else than a JSON object")
        return document

    def must_be_ok(self) -> None:
        """Raise `Refused` with the reason in the body, unless the status is 200."""
        if self.status != 200:
            raise Refused(self.place, self.status, reason_in(self.body))

    @property
    def replica(self) -> str:
        """Which replica answered, where a router says it."""
        return self.headers.get("x-replicarouter-replica", "")

    @property
    def affinity(self) -> str:
        """How the request came to its replica, where a router says it."""
        return self.headers.get("x-replicarouter-affinity", "")

    @property
    def held(self) -> float:
        """Seconds that a router held the request before it was sent on; 0 where nothing is said.

        From `Server-Timing` (https://www.w3.org/TR/server-timing/), whose durations are milliseconds.
        """
        total = 0.0
        for entry in self.headers.get("server-timing", "").split(","):
            name, *parameters = (part.strip() for part in entry.split(";"))
            for parameter in parameters:
                if name in {"queue", "connect"} and parameter.startswith("dur="):
                    total += _number(parameter.removeprefix("dur="))
        return total / 1000


@dataclass(slots=True)
class Streamed:
    """A stream that has been read to its end. Times are seconds on one clock; `faults` is empty for a
    well-formed one that was not cut."""

    reply: Reply
    asked_at: float
    events: list[Event] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    ended_at: float = 0.0


def reason_in(body: bytes) -> str:
    """What an error's body says, in OpenAI's shape or another that engines use, in one line."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        document = body.decode("utf-8", "replace")
    for name in ("error", "message", "detail"):
        if isinstance(document, dict) and name in document:
            document = document[name]
    text = " ".join((document if isinstance(document, str) else str(document)).split())
    return text if len(text) <= _LONGEST_REASON else text[:_LONGEST_REASON] + " …"


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
