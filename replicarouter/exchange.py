"""The record of one client request: what it asked for, where it is, and how it ended."""

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


class Exchange:
    """One request with everything that happened to it. Times are seconds on the router's clock.

    `client_id` is the request id the client sees, `upstream_id` the one its replica sees.
    A time of 0 means: has not happened. What most requests never change is kept on the class.
    """

    model = ""
    replica = ""
    stage = Stage.RECEIVING
    received_at = 0.0
    leased_at = 0.0
    sent_at = 0.0
    head_at = 0.0
    first_content_at = 0.0
    first_answer_at = 0.0
    reasoned = False
    ended_at = 0.0
    status = 0
    bytes_in = 0
    bytes_out = 0
    outcome = UNSETTLED
    prompt_tokens = 0
    cached_tokens = 0
    completion_tokens = 0
    attempts = 0
    affinity = "none"
    in_band_error = False

    def __init__(
        self, *, method: str, path: str, endpoint: str, accepted_at: float, client_id: str = ""
    ) -> None:
        self.method = method
        self.path = path
        self.endpoint = endpoint
        self.accepted_at = accepted_at
        self.client_id = client_id
        self.upstream_id = client_id
