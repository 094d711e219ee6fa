"""Ids of stored responses: in the path of a request, and in the first bytes of an answer."""

import re
from urllib.parse import unquote

RESPONSES = "/v1/responses"

MOST_SEARCHED = 16384
"""Bytes at the beginning of an answer in which its id is looked for."""

_ID = re.compile(rb'"id"[ \t\r\n]*:[ \t\r\n]*"(resp[^"\\\x00-\x1f]{1,250})"')


def named_in_path(path: str) -> str | None:
    """The id in a path below `/v1/responses/`; None in any other path."""
    if not path.startswith(f"{RESPONSES}/"):
        return None
    return unquote(path[len(RESPONSES) + 1 :].partition("/")[0])


class ResponseIdFinder:
    """Looks for the id in an answer's bytes as they pass, JSON or events alike, up to a limit.

    Ids begin with `resp`, as OpenAI's, vLLM's and SGLang's do; ids of output items do not.
    """

    __slots__ = ("_seen", "over")

    def __init__(self) -> None:
        self._seen = b""
        self.over = False

    def feed(self, data: bytes) -> str | None:
        """Look at more bytes; the id when it is found, once. `over` when there is no more to look for."""
        if self.over:
            return None
        self._seen += data[:MOST_SEARCHED]
        found = _ID.search(self._seen)
        self.over = found is not None or len(self._seen) >= MOST_SEARCHED
        return None if found is None else found[1].decode("utf-8", "replace")
