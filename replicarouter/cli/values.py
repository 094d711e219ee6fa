"""Readers of what stands after a flag: numbers, seconds, URLs and labels, for the `type` of argparse.

Each raises `ArgumentTypeError` that shows the value and says what is accepted.
"""

import argparse
from typing import NoReturn
from urllib.parse import SplitResult, urlsplit

ROUTER = "http://127.0.0.1:8080"
"""Where a router's main port is unless it is said."""

ADMIN = "http://127.0.0.1:8081"
"""The same of its admin port."""

_INFINITY = float("inf")


# Numbers


def count(text: str) -> int:
    """A whole number, 1 or more."""
    return _integer(text, least=1)


def whole(text: str) -> int:
    """A whole number, 0 or more."""
    return _integer(text, least=0)


def positive(text: str) -> float:
    """A finite number above 0."""
    return _above_zero(text, "a number")


def not_negative(text: str) -> float:
    """A finite number, 0 or more."""
    return _from(text, "a number", least=0)


def one_or_more(text: str) -> float:
    """A finite number, 1 or more."""
    return _from(text, "a number", least=1)


def seconds(text: str) -> float:
    """A finite time above 0."""
    return _above_zero(text, "seconds")


def seconds_or_zero(text: str) -> float:
    """A finite time, or 0 for no time at all."""
    return _from(text, "seconds", least=0)


# Addresses


def base_url(text: str) -> str:
    """The URL of a router or an engine; `/v1` at its end, which clients of OpenAI write, is left out."""
    parts = _split(text, such_as=ROUTER, instead="--key")
    if parts.query or parts.fragment:
        _wrong_url(text, such_as=ROUTER)
    return text.rstrip("/").removesuffix("/v1")


def router_url(text: str) -> str:
    """The URL of a router, by its main or its admin port."""
    _split(text, such_as=ROUTER, instead="--key")
    return text


def admin_url(text: str) -> str:
    """The URL of a router's admin port."""
    _split(text, such_as=ADMIN, instead="--token")
    return text


# Words


def label(text: str) -> tuple[str, str]:
    """A key and its text, with `=` between them."""
    key, _, value = text.partition("=")
    if not (key and value):
        _wrong(text, "KEY=TEXT")
    return key, value


# Parts of these


def _integer(text: str, *, least: int) -> int:
    if not text.isdecimal() or int(text) < least:
        _wrong(text, f"a whole number, {least} or more")
    return int(text)


def _above_zero(text: str, kind: str) -> float:
    value = _number(text)
    if value <= 0:
        _wrong(text, f"{kind} above 0")
    return value


def _from(text: str, kind: str, *, least: int) -> float:
    value = _number(text)
    if value < least:
        _wrong(text, f"{kind}, {least} or more")
    return value


def _number(text: str) -> float:
    """A finite number; -1, which no reader accepts, where there is none."""
    try:
        value = float(text)
    except ValueError:
        return -1.0
    return value if value < _INFINITY else -1.0


def _split(text: str, *, such_as: str, instead: str) -> SplitResult:
    """The parts of a URL of HTTP that names a host, and a port that can be if it names one. Credentials are
    refused and not repeated; the flag `instead` is for them."""
    if "@" in text:
        _refuse_credentials(instead=instead)
    try:
        parts = urlsplit(text)
        usable = parts.scheme in {"http", "https"} and parts.hostname and (parts.port is None or parts.port)
    except ValueError:
        _wrong_url(text, such_as=such_as)
    if not usable:
        _wrong_url(text, such_as=such_as)
    return parts


def _wrong_url(text: str, *, such_as: str) -> NoReturn:
    _wrong(text, f"a URL such as {such_as}")


def _refuse_credentials(*, instead: str) -> NoReturn:
    raise argparse.ArgumentTypeError(f"credentials do not belong into a URL; use {instead}")


def _wrong(text: str, accepted: str) -> NoReturn:
    raise argparse.ArgumentTypeError(f"{text!r}; accepted: {accepted}")
