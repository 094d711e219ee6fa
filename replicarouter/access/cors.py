"""Pages of other origins that call the router from a browser: what the browser is told."""

import re
from collections.abc import Iterable, Mapping

from replicarouter.protocol.answer import LocalAnswer

ANY = "*"

MAX_AGE = 7200
"""Seconds that a browser may remember the answer to a preflight; Chromium remembers none longer."""

_METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
_RECEIPTS = "X-Request-Id, X-Replicarouter-Replica, X-Replicarouter-Affinity, Server-Timing, Retry-After"
_NAMES = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z, \t-]{1,4096}")


class Cors:
    """The origins that may read answers; false when there are none.

    Credentials of the browser's own (cookies) are never allowed: callers show keys that their page holds.
    """

    def __init__(self, origins: Iterable[str] = ()) -> None:
        self._origins = frozenset(origins)
        self._fields = {origin: self._lines(origin) for origin in self._origins}
        self._other = self._fields.get(ANY, b"Vary: Origin\r\n" if self._origins else b"")

    def __bool__(self) -> bool:
        return bool(self._origins)

    def fields(self, origin: str | None) -> bytes:
        """The field lines that belong on every answer to a request with this `Origin`."""
        return self._other if origin is None else self._fields.get(origin, self._other)

    def preflight(self, method: str, headers: Mapping[str, str]) -> LocalAnswer | None:
        """The answer to a browser's question whether its page may send a request.

        None for any other request, and for a page that may not: it is answered without permission.
        Browsers send no key with this question.
        """
        if method != "OPTIONS" or "Access-Control-Request-Method" not in headers:
            return None
        origin = headers.get("Origin")
        if origin is None or not (ANY in self._origins or origin in self._origins):
            return None
        fields = [("Access-Control-Allow-Methods", _METHODS), ("Access-Control-Max-Age", str(MAX_AGE))]
        asked = headers.get("Access-Control-Request-Headers", "")
        if _NAMES.fullmatch(asked):
            fields.append(("Access-Control-Allow-Headers", asked))
        return LocalAnswer(204, b"", content_type="", headers=fields)

    def _lines(self, origin: str) -> bytes:
        varies = "" if origin == ANY else "Vary: Origin\r\n"
        return (
            f"Access-Control-Allow-Origin: {origin}\r\nAccess-Control-Expose-Headers: {_RECEIPTS}\r\n{varies}"
        ).encode("ascii")
