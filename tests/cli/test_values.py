"""Readers of what stands after a flag."""

import argparse
from collections.abc import Callable
from typing import Any

import pytest

from replicarouter.cli.values import (
    admin_url,
    base_url,
    count,
    label,
    not_negative,
    one_or_more,
    positive,
    router_url,
    seconds,
    seconds_or_zero,
    whole,
)

Reader = Callable[[str], Any]

ROUTER = "a URL such as http://127.0.0.1:8080"
ADMIN = "a URL such as http://127.0.0.1:8081"
NO_URL = (
    "",
    "nonsense",
    "127.0.0.1:8080",
    "ftp://a",
    "http://",
    "http://[::1",
    "http://a:0",
    "http://a:99999",
)
NO_NUMBER = ("", "soon", "inf", "-inf", "nan")
NO_INTEGER = ("", "x", "-1", "1.5", " 1", "1_000_", "²")


def refusal(reader: Reader, text: str) -> str:
    with pytest.raises(argparse.ArgumentTypeError) as refused:
        reader(text)
    return str(refused.value)


@pytest.mark.parametrize(
    ("reader", "text", "value"),
    [
        (count, "1", 1),
        (count, "007", 7),
        (whole, "0", 0),
        (whole, "10000", 10_000),
        (positive, "0.5", 0.5),
        (positive, "1e3", 1000.0),
        (not_negative, "0", 0.0),
        (not_negative, "2.5", 2.5),
        (one_or_more, "1", 1.0),
        (seconds, "0.001", 0.001),
        (seconds_or_zero, "0", 0.0),
        (seconds_or_zero, "30", 30.0),
        (label, "rack=a=b", ("rack", "a=b")),
    ],
)
def test_a_value_is_read(reader: Reader, text: str, value: object) -> None:
    read = reader(text)
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(
    ("reader", "texts", "accepted"),
    [
        (count, (*NO_INTEGER, "0"), "a whole number, 1 or more"),
        (whole, NO_INTEGER, "a whole number, 0 or more"),
        (positive, (*NO_NUMBER, "0", "-1"), "a number above 0"),
        (not_negative, (*NO_NUMBER, "-0.1"), "a number, 0 or more"),
        (one_or_more, (*NO_NUMBER, "0.99"), "a number, 1 or more"),
        (seconds, (*NO_NUMBER, "0", "-1"), "seconds above 0"),
        (seconds_or_zero, (*NO_NUMBER, "-0.1"), "seconds, 0 or more"),
        (label, ("", "rack", "rack=", "=a"), "KEY=TEXT"),
        (base_url, (*NO_URL, "http://a?x=1", "http://a#x"), ROUTER),
        (router_url, NO_URL, ROUTER),
        (admin_url, NO_URL, ADMIN),
    ],
)
def test_what_is_no_such_value_is_shown_with_what_is_accepted(
    reader: Reader, texts: tuple[str, ...], accepted: str
) -> None:
    for text in texts:
        assert refusal(reader, text) == f"{text!r}; accepted: {accepted}"


@pytest.mark.parametrize("reader", [base_url, router_url, admin_url])
@pytest.mark.parametrize("url", ["http://a", "https://a.example:8443", "http://[::1]:8080/prefix"])
def test_a_url_is_read_as_it_is(reader: Reader, url: str) -> None:
    assert reader(url) == url


@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/"])
def test_a_base_url_ends_before_v1(end: str) -> None:
    assert base_url(f"http://a:8080/prefix{end}") == "http://a:8080/prefix"


@pytest.mark.parametrize(
    ("reader", "flag"), [(base_url, "--key"), (router_url, "--key"), (admin_url, "--token")]
)
@pytest.mark.parametrize(
    "url",
    [
        *("http://user:secret@a", "http://user@a", "http://:secret@a/v1", "http://user:secret@h?x=1"),
        *("user:secret@a", "http://user:secret@["),
    ],
)
def test_credentials_in_a_url_are_refused_and_not_repeated(reader: Reader, flag: str, url: str) -> None:
    assert refusal(reader, url) == f"credentials do not belong into a URL; use {flag}"
