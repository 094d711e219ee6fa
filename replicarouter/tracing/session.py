"""The HTTP session to a collector: one deadline for all of an exchange with it, little read of what it
answers, and no redirect followed."""

import socket
import time
from contextlib import suppress
from http.client import HTTPResponse
from io import BufferedReader, RawIOBase
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from requests.cookies import RequestsCookieJar
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, Timeout
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError

from replicarouter.words import printable

MOST_READ = 65536
"""Bytes of an answer's body, of which nothing is needed: what is read whole keeps its connection."""

LONGEST = 100
"""Characters of a host's name that are told."""


class RedirectedElsewhere(requests.RequestException):
    """A collector sends spans to another address, where nobody has said that they may go."""


class CollectorSession(requests.Session):
    """A session that goes by no proxy and no `.netrc` that the environment names for other programs, and
    keeps no cookie. The timeout of a request is that of all its parts together."""

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False
        self.cookies = _NoCookies()
        for scheme in ("http://", "https://"):
            self.mount(scheme, _Adapter())

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """Send it. The answer is as good as its status; its body is read no longer than it matters."""
        given = options.get("timeout")
        if isinstance(given, int | float):
            options["timeout"] = Timeout(total=given)
        response = super().send(request, **{**options, "stream": True, "allow_redirects": False})
        with response:
            if 300 <= response.status_code < 400:
                raise RedirectedElsewhere(
                    f"it redirects to {_host(response.headers.get('location', ''))} "
                    f"({response.status_code}), which is not followed"
                )
            with suppress(HTTPError, OSError, ValueError):
                response.raw.read(MOST_READ, decode_content=False)
        return response

    def get_redirect_target(self, resp: requests.Response) -> None:
        """None, also where there is one: to find out what comes next, the base class reads all of a body."""


class _NoCookies(RequestsCookieJar):
    def set_cookie(self, cookie: Any, *args: Any, **kwargs: Any) -> None:
        """Keep none."""


class _Patient(RawIOBase):
    """The bytes of a socket until a moment, however slowly they come: each read has what is left of it."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        limit = end.gettimeout()
        self._until = None if limit is None else time.monotonic() + limit
        self._bytes = end.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self._until is not None:
            left = self._until - time.monotonic()
            if left <= 0:
                raise TimeoutError("timed out")
            self._socket.settimeout(left)
        return self._bytes.readinto(buffer)

    def close(self) -> None:
        self._bytes.close()
        super().close()


class _Answer(HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.fp.close()
        self.fp = BufferedReader(_Patient(sock))


class _Connection(HTTPConnection):
    response_class = _Answer


class _SecureConnection(HTTPSConnection):
    response_class = _Answer


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


class _Adapter(HTTPAdapter):
    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **options)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _SecurePool}


def _host(location: str) -> str:
    """The host that the field names, whatever it holds."""
    try:
        host = urlsplit(location).hostname
    except ValueError:
        return "what is no address"
    return printable(host[:LONGEST]) if host else "the same host"
