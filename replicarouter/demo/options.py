"""What a demonstration is made of, and how it can fail."""

from dataclasses import dataclass


class DemoFailed(Exception):
    """The demonstration cannot go on; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """`seconds` None runs until a signal; `connector_limit` 0 is no limit."""

    users: int
    replicas: int
    policy: str
    connector_limit: int
    profile: str
    seconds: float | None
