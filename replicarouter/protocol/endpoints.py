"""The paths that are relayed, as a table. What is not here never reaches a replica."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from replicarouter.errors import MethodNotAllowed, UnknownPath


class Body(Enum):
    """What a request's body is, as far as routing must know."""

    JSON = "a JSON object that may name its model"
    OPTIONAL = "nothing, or a JSON object"
    FORM = "a multipart form that may name its model"
    SESSION = "nothing: the connection becomes a WebSocket, the query may name the model"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One API path: `label` names it in metrics, `bodies` says for each method what its body is;
    `added` by the operator: the router's own paths come first. `caches_prompt`: engines compute the prompt
    of such a request for a reply, and keep it in their KV cache."""

    label: str
    bodies: Mapping[str, Body]
    added: bool = False
    caches_prompt: bool = True

    @property
    def allow(self) -> str:
        """The value of an `Allow` field."""
        return ", ".join(self.bodies)


_POST = {"POST": Body.JSON}

_GENERATING = (
    "/v1/chat/completions",
    "/v1/chat/completions/batch",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/inference/v1/generate",
    "/generate",
)

_OTHERS = (
    "/v1/messages/count_tokens",
    "/v1/embeddings",
    "/v1/score",
    "/v1/rerank",
    "/v1/audio/speech",
    "/v1/images/generations",
    "/v1/classify",
    "/v1/tokenize",
    "/v1/detokenize",
    "/v2/rerank",
    "/v2/embed",
    "/tokenize",
    "/detokenize",
    "/pooling",
    "/classify",
    "/score",
    "/rerank",
    "/encode",
)
"""What counts tokens computes nothing. What pools may use a prefix cache in vLLM, but only with a causal
model that pools the last token, which no request tells; most have no KV cache at all. A prompt that is
wrongly thought to be cached costs more than one that is not looked for."""

_FORMS = ("/v1/audio/transcriptions", "/v1/audio/translations")

_SESSIONS = ("/v1/realtime",)

_ID = r"(?!\.{1,2}(?:/|\Z))(?:[^/?#%\\\s]|%(?!2[eEfF]|5[cC]|00)[0-9a-fA-F]{2})+"
"""One path segment that no reading of the path could turn into another path."""

_PATTERNS: tuple[tuple[str, Mapping[str, Body]], ...] = (
    ("/v1/responses/{id}", {"GET": Body.OPTIONAL, "DELETE": Body.OPTIONAL}),
    ("/v1/responses/{id}/cancel", {"POST": Body.OPTIONAL}),
    ("/v1/responses/{id}/input_items", {"GET": Body.OPTIONAL}),
    ("/v1/audio/{id}", _POST),
)

_ANY = dict.fromkeys(("GET", "POST", "PUT", "PATCH", "DELETE"), Body.OPTIONAL)


class Endpoints:
    """The table, with the paths that the operator added (`extra_paths`; a trailing `/*` means all below)."""

    def __init__(self, extra_paths: Iterable[str] = ()) -> None:
        self._fixed = {path: Endpoint(path, _POST) for path in _GENERATING}
        self._fixed.update({path: _without_prompt(path, _POST) for path in _OTHERS})
        self._fixed.update({path: _without_prompt(path, {"POST": Body.FORM}) for path in _FORMS})
        self._fixed.update({path: _without_prompt(path, {"GET": Body.SESSION}) for path in _SESSIONS})
        self._patterns = [_compiled(label, bodies) for label, bodies in _PATTERNS]
        for path in extra_paths:
            if path.endswith("/*"):
                below = re.escape(path[:-1]) + _ID + f"(?:/{_ID})*"
                self._patterns.append((re.compile(below), _added(path)))
            else:
                self._fixed[path] = _added(path)

    def __iter__(self) -> Iterator[Endpoint]:
        yield from self._fixed.values()
        yield from (endpoint for _, endpoint in self._patterns)

    def find(self, path: str) -> Endpoint | None:
        """The row of `path` (without its query)."""
        endpoint = self._fixed.get(path)
        if endpoint is not None:
            return endpoint
        for pattern, candidate in self._patterns:
            if pattern.fullmatch(path):
                return candidate
        return None


def body_kind(endpoint: Endpoint | None, method: str) -> Body:
    """What the body of `method` on `endpoint` is; raises `UnknownPath`, `MethodNotAllowed`."""
    if endpoint is None:
        raise UnknownPath(
            "This path is not served here. Inference paths such as /v1/chat/completions are relayed; "
            "others need the router's setting extra_paths."
        )
    kind = endpoint.bodies.get(method)
    if kind is None:
        raise MethodNotAllowed(f"Use {endpoint.allow} on {endpoint.label}.", allow=endpoint.allow)
    return kind


def _compiled(label: str, bodies: Mapping[str, Body]) -> tuple[re.Pattern[str], Endpoint]:
    return re.compile(label.replace("{id}", _ID)), _without_prompt(label, bodies)


def _without_prompt(label: str, bodies: Mapping[str, Body]) -> Endpoint:
    return Endpoint(label, bodies, caches_prompt=False)


def _added(label: str) -> Endpoint:
    """A path of the operator's: what an engine does there nobody here knows."""
    return Endpoint(label, _ANY, added=True, caches_prompt=False)
