"""What an engine means by 429, 500 or 503: whether it ran the request, and whether it is ill or only busy."""

import re
from dataclasses import dataclass
from enum import Enum

from replicarouter.protocol.response_head import ResponseHead

REFUSING = frozenset((429, 500, 503))
"""Statuses whose answer may say that the request was never begun."""

MOST_HELD = 8192
"""Bytes of such an answer's body that are looked at."""

LONGEST_PAUSE = 3600.0
"""Seconds that a `Retry-After` can ask for at most; more is taken for a mistake."""


class Meaning(Enum):
    """Why a replica did not run a request. The value names it in metrics and logs."""

    BUSY = "busy"
    LOADING = "loading"
    LEAVING = "shutting_down"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer by which a replica declines a request that it never began.

    `retry_after` is in seconds, None when the engine does not say.
    """

    meaning: Meaning
    retry_after: float | None = None


# vLLM's words while it drains, when its admission control is full, and when it sleeps; uvicorn's for its
# own limit; SGLang's and llama.cpp's while they load.
_LEAVING = re.compile(rb"after shutdown|shutting down|shut down|is draining", re.IGNORECASE)
_LOADING = re.compile(
    rb"loading|warming up|starting up|initiali[sz]ing|not ready|sleeping|is asleep", re.IGNORECASE
)
_BUSY = re.compile(
    rb"busy|overload|too many|rate limit|capacity|concurrency|queue|exhausted|different instance",
    re.IGNORECASE,
)
_RETRY_AFTER = re.compile(rb"\r\nretry-after:[ \t]*([0-9]{1,9})[ \t]*(?=\r|\Z)", re.IGNORECASE)


def read_refusal(head: ResponseHead, body: bytes) -> Refusal | None:
    """What the answer says; None for an error of a request that was run, or may have been.

    A 503 always means that the request was not run, a 500 only when it says so.
    """
    asked = _RETRY_AFTER.search(head.fields)
    retry_after = None if asked is None else min(float(asked[1]), LONGEST_PAUSE)
    # A compressed text says nothing.
    text = b"" if head.encoded else body
    if head.status == 429:
        return Refusal(Meaning.BUSY, retry_after)
    if head.status == 500:
        return Refusal(Meaning.LEAVING) if _LEAVING.search(text) else None
    if head.status != 503:
        return None
    if _LEAVING.search(text):
        return Refusal(Meaning.LEAVING, retry_after)
    if _BUSY.search(text):
        return Refusal(Meaning.BUSY, retry_after)
    if _LOADING.search(text):
        return Refusal(Meaning.LOADING, retry_after)
    return Refusal(Meaning.UNAVAILABLE if retry_after is None else Meaning.BUSY, retry_after)
