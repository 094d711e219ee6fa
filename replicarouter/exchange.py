"""The record of one client request: what it asked for, where it is, and how it ended."""

from dataclasses import dataclass
from enum import IntEnum


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


OTHER = "other"
"""The label of an endpoint or model that the router does not serve."""

OK = "ok"
CLIENT_GONE = "client_gone"
UPSTREAM_ERROR = "upstream_error"
UNSETTLED = "unsettled"
"""An exchange begins unsettled: success must be said, never assumed."""


@dataclass(slots=True, eq=False)
class Exchange:
    """One request with everything that happened to it. Times are seconds on the router's clock.

    `client_id` is the request id the client sees, `upstream_id` the one its replica sees.
    A time of 0 means: has not happened.
    """

    client_id: str
    upstream_id: str
    method: str
    path: str
    endpoint: str
    accepted_at: float
    model: str = ""
    replica: str = ""
    stage: Stage = Stage.RECEIVING
    received_at: float = 0.0
    leased_at: float = 0.0
    sent_at: float = 0.0
    head_at: float = 0.0
    first_content_at: float = 0.0
    first_answer_at: float = 0.0
    reasoned: bool = False
    ended_at: float = 0.0
    status: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    outcome: str = UNSETTLED
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    attempts: int = 0
    affinity: str = "none"
    in_band_error: bool = False
