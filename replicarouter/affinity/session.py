"""The session key: what a caller says of which requests belong together."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from multidict import CIMultiDictProxy, istr
from xxhash import xxh3_64_intdigest

from replicarouter.protocol.json_values import Opaque

BODY_FIELDS = ("prompt_cache_key", "session_id", "conversation", "user")
"""Fields of a body that may carry the key, first come first."""

_AUTHORIZATION, _X_API_KEY = istr("Authorization"), istr("x-api-key")
_NO_FIELDS: Mapping[str, Any] = {}


class SessionReader:
    """Finds the session key: in one of `headers`, whose order counts and whose case does not, else in the
    body, else, with `stick_to_api_key`, it is the caller's API key."""

    def __init__(self, headers: Sequence[str], *, stick_to_api_key: bool) -> None:
        self._headers: Sequence[str] = [istr(name) for name in headers]
        self._stick_to_api_key = stick_to_api_key

    def read(self, fields: Mapping[str, Any] | None, headers: CIMultiDictProxy[str]) -> int | None:
        """The hash of the key (XXH3, 64 bits) without blanks around it, or None if there is none.

        Of a header that was sent more than once the first value counts that is not blank. What is blank,
        or neither a text nor a number, counts as missing. Never raises.
        """
        key = self._in_headers(headers)
        if key:
            return _hashed(key)
        fields = fields or _NO_FIELDS
        for name in BODY_FIELDS:
            value = fields.get(name)
            if value is not None:
                key = _text(value.get("id") if name == "conversation" and type(value) is dict else value)
                if key:
                    return _hashed(key)
        key = _api_key(headers) if self._stick_to_api_key else ""
        return _hashed(key) if key else None

    def named_in(self, headers: CIMultiDictProxy[str]) -> bool:
        """Whether one of the headers carries the key, so that the body does not matter."""
        return bool(self._in_headers(headers))

    def _in_headers(self, headers: CIMultiDictProxy[str]) -> str:
        for name in self._headers:
            if name in headers:
                key = _first_said(headers.getall(name))
                if key:
                    return key
        return ""


def _first_said(values: Iterable[str]) -> str:
    return next((said for value in values if (said := value.strip())), "")


def _text(value: Any) -> str:
    if type(value) is str:
        return value.strip()
    if type(value) is int or type(value) is float:
        return str(value)
    return f"{value.digest:x}" if type(value) is Opaque else ""


def _api_key(headers: CIMultiDictProxy[str]) -> str:
    """The key as the door takes it, told apart from a session of the same name."""
    for value in headers.getall(_AUTHORIZATION, ()):
        scheme, _, key = value.strip().partition(" ")
        if scheme.lower() == "bearer" and key.strip():
            return f"key {key.strip()}"
    key = _first_said(headers.getall(_X_API_KEY, ()))
    return f"key {key}" if key else ""


def _hashed(key: str) -> int:
    return xxh3_64_intdigest(key.encode("utf-8", "surrogatepass"))
