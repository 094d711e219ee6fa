"""The door of the main port: who may come in, and what each caller is called."""

import hashlib
import hmac
from collections.abc import Iterable
from typing import NamedTuple

from multidict import MultiMapping

from replicarouter.access.proxies import Proxies
from replicarouter.errors import InvalidApiKey
from replicarouter.settings import NamedKey

OPEN_PATHS = frozenset(("/health", "/ready"))
"""Paths that answer without a key: load balancers and supervisors have none."""

_NO_KEY = "No API key was sent. Send one: 'Authorization: Bearer KEY' or 'x-api-key: KEY'."
_WRONG_KEY = "This API key is not known here."
_SEVERAL_KEYS = "Several different credentials were sent. Send one API key."
_NO_BEARER = "Send the API key as 'Authorization: Bearer KEY'."


class Visitor(NamedTuple):
    """Who sends a request. `name` orders the queue: the name of the key, else the client's address.

    `forwards` says whether what it tells of other addresses (`X-Forwarded-For` and the like) may be
    passed on.
    """

    name: str
    key_name: str | None = None
    forwards: bool = True


class Door:
    """Lets in whoever shows one of the keys; everybody when there are none."""

    open_paths = OPEN_PATHS

    def __init__(self, keys: Iterable[NamedKey] = (), proxies: Proxies | None = None) -> None:
        self._proxies = proxies or Proxies()
        self._keys: tuple[tuple[bytes, str], ...] = ()
        self.replace(keys)

    @property
    def locked(self) -> bool:
        """Whether a key is needed. The caller's credentials are then ours, and stop here."""
        return bool(self._keys)

    @property
    def open_to_all(self) -> bool:
        """Whether everybody may come in, and is who his connection says he is."""
        return not self._keys and not self._proxies

    def replace(self, keys: Iterable[NamedKey]) -> None:
        """Accept these keys from now on; requests that are in already stay in."""
        self._keys = tuple((_digest(key.secret.get_secret_value()), key.name) for key in keys)

    def admit(self, headers: MultiMapping[str], peer: str) -> Visitor:
        """Say who sends a request with these `headers` from `peer`, the address of its connection.

        Raises `InvalidApiKey` for no key, a wrong one, or several different credentials.
        """
        key_name = self._key_name(headers) if self._keys else None
        if not self._proxies:
            return Visitor(key_name or peer, key_name)
        trusted = self._proxies.trusts(peer)
        if key_name is None and trusted:
            peer = self._proxies.client_of(headers.getall("X-Forwarded-For", ()), peer)
        return Visitor(key_name or peer, key_name, trusted)

    def _key_name(self, headers: MultiMapping[str]) -> str:
        """The name of the key that was sent."""
        sent = {_bearer(value) for value in headers.getall("Authorization", ())}
        sent.update(value.strip() for value in headers.getall("x-api-key", ()))
        if not sent:
            raise InvalidApiKey(_NO_KEY)
        if len(sent) > 1:
            raise InvalidApiKey(_SEVERAL_KEYS)
        digest = _digest(sent.pop())
        found = None
        # Every key is compared, and in full: how long it takes says nothing about any of them.
        for known, name in self._keys:
            if hmac.compare_digest(known, digest):
                found = name
        if found is None:
            raise InvalidApiKey(_WRONG_KEY)
        return found


def _bearer(value: str) -> str:
    scheme, _, key = value.strip().partition(" ")
    if scheme.lower() != "bearer":
        raise InvalidApiKey(_NO_BEARER)
    return key.strip()


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
