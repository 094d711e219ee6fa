"""Who may come in through the operator's door."""

import hashlib
import hmac
from urllib.parse import urlsplit

from aiohttp import web

from replicarouter.admin.page_files import PAGE_PATHS
from replicarouter.errors import InvalidApiKey, InvalidRequest, RouterError
from replicarouter.settings import AdminSettings

OPEN_PATHS = frozenset(("/health", "/ready")) | PAGE_PATHS
"""Whoever asks for these learns nothing: the page is a shell that has to ask for its data."""

ELSEWHERE = frozenset(("cross-site", "same-site"))
"""What a browser says of requests that a page of another origin makes."""

LOOPBACK_NAMES = frozenset(("localhost", "127.0.0.1", "::1"))
READING = frozenset(("GET", "HEAD", "OPTIONS"))
JSON = "application/json"


class Guard:
    """Asks for the token; without one, for a request that no page of another site can make."""

    def __init__(self, settings: AdminSettings) -> None:
        self._token = _digest(settings.token.get_secret_value()) if settings.token else None
        self._hosts = LOOPBACK_NAMES | {settings.host}

    def refusal(self, request: web.Request) -> RouterError | None:
        """Why this request may not come in; None when it may."""
        if request.path in OPEN_PATHS:
            return None
        if self._token is not None:
            return _token_refusal(request, self._token)
        # Without a token only loopback can reach this port; a web page in a local browser must not.
        host, origin = request.headers.get("Host", ""), request.headers.get("Origin")
        names = [host] if origin is None else [host, origin.partition("://")[2]]
        if not all(_host_of(name) in self._hosts for name in names):
            return InvalidApiKey("Without an admin token this port answers only to loopback names.")
        if request.headers.get("Sec-Fetch-Site") in ELSEWHERE:
            # Its page could read nothing, but hold places that others need.
            return InvalidApiKey("Without an admin token this port answers no page of another site.")
        if request.method in READING:
            return None
        if origin is not None and origin.partition("://")[2].lower() != host.lower():
            return InvalidApiKey("Without an admin token pages of other ports may change nothing.")
        return _form_refusal(request)


_NO_TOKEN = InvalidApiKey(
    "This port asks for the admin token: send it as Authorization: Bearer TOKEN.", param="authorization"
)
_WRONG_TOKEN = InvalidApiKey("This is not the admin token.", param="authorization")


def _token_refusal(request: web.Request, token: bytes) -> RouterError | None:
    """Whether a token was sent is no secret. Digests are compared, in a time that tells nothing of the token,
    its length included."""
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not given.strip():
        return _NO_TOKEN
    return None if hmac.compare_digest(_digest(given), token) else _WRONG_TOKEN


def _form_refusal(request: web.Request) -> RouterError | None:
    """A page of any site may send a form without asking first, but no JSON."""
    declared = request.headers.get("Content-Type")
    if declared is None and not request.body_exists:
        return None
    if (declared or "").partition(";")[0].strip().lower() == JSON:
        return None
    return InvalidRequest(f"Send no body, or JSON with Content-Type: {JSON}.")


def _host_of(netloc: str) -> str:
    """The host of a `Host` field, without port and brackets; empty when it is none."""
    try:
        return urlsplit(f"//{netloc}").hostname or ""
    except ValueError:
        return ""


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
