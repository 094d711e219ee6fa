"""Patterns of URLs: what they match, and above all what they do not."""

import ipaddress

import pytest

from replicarouter.settings import Settings
from replicarouter.settings.replica import canonical_url
from replicarouter.settings.url_pattern import UrlPattern, address_of

MATCHES = {
    "*": ["http://a", "https://a.b.c:1/base", "http://10.0.0.1:8000", "http://[::1]:1"],
    "http://gpu*": ["http://gpu", "http://gpu1:8000", "http://GPU7:1/base"],
    "gpu1": ["http://gpu1", "https://gpu1:9"],
    "*://gpu1:443": ["https://gpu1", "http://gpu1:443"],
    "http://*.gpu.example:8000": ["http://a.gpu.example:8000", "http://b.a.gpu.example:8000/v"],
    "http://127.0.0.1:*": ["http://127.0.0.1:9000", "http://127.0.0.1"],
    "http://127.0.0.1:80*": ["http://127.0.0.1:8001", "http://127.0.0.1"],
    "http://127.0.0.1:9000/*": ["http://127.0.0.1:9000", "http://127.0.0.1:9000/base/more"],
    "http://h/base": ["http://h/base", "http://h/base/"],
    "http://h/base/*": ["http://h/base", "http://h/base/more"],
    "10.0.0.*": ["http://10.0.0.1:8000", "http://10.0.0.254"],
    "http://10.*": ["http://10.1.2.3:1"],
    "10.0.0.0/8": ["http://10.1.2.3:1", "https://10.255.0.1/base"],
    "10.9.9.9/8": ["http://10.1.2.3:1"],
    "https://10.0.0.0/8": ["https://10.1.2.3"],
    "10.0.0.1": ["http://10.0.0.1:5"],
    "fd00::/8": ["http://[fd12::1]:8000"],
    "http://[fd00::1]:8000": ["http://[fd00:0::1]:8000"],
    "[fd00::*]:8000": ["http://[fd00::77]:8000"],
    "::1": ["http://[::1]:8000"],
}

DIFFERS = {
    "http://gpu*": ["http://gpu.evil.example", "http://gpu1.evil.example", "https://gpu1", "http://a.gpu"],
    "gpu1": ["http://gpu12", "http://xgpu1", "http://gpu1.evil.example"],
    "http://gpu1:8000": ["http://gpu1:8001", "http://gpu1", "http://gpu1:800"],
    "http://*.gpu.example:8000": [
        "http://gpu.example:8000",
        "http://agpu.example:8000",
        "http://a.gpu.example.evil:8000",
        "http://a.gpu.example:80",
    ],
    "10.0.0.*": ["http://10.0.0.com", "http://10.0.0.1.evil.example", "http://110.0.0.1", "http://10.0.1.0"],
    "http://10.*": ["http://10.evil.example", "http://110.0.0.1"],
    "10.0.0.0/8": ["http://11.0.0.1", "http://10.evil.example", "http://[::ffff:b00:1]"],
    "https://10.0.0.0/8": ["http://10.1.2.3"],
    "127.0.0.1": ["http://127.1", "http://2130706433", "http://0x7f000001", "http://localhost"],
    "http://h/base": ["http://h", "http://h/basement", "http://h/base/more"],
    "http://h/base/*": ["http://h/basement", "http://h"],
    "fd00::/8": ["http://[fe80::1]", "http://10.0.0.1"],
    "h.example": ["http://hxexample"],
}

NONE = [
    "",
    "http://",
    "ftp://a",
    "file:///etc",
    "http://a b",
    "http://a:b",
    "http://a?x",
    "http://u@a",
    "a:1:2",
    "[::1",
    "http://é",
]


def pairs(table: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(pattern, url) for pattern, urls in table.items() for url in urls]


@pytest.mark.parametrize(("pattern", "url"), pairs(MATCHES))
def test_a_pattern_matches_what_it_means(pattern: str, url: str) -> None:
    assert UrlPattern.parse(pattern).matches(canonical_url(url))


@pytest.mark.parametrize(("pattern", "url"), pairs(DIFFERS))
def test_a_pattern_matches_nothing_that_only_looks_like_it(pattern: str, url: str) -> None:
    assert not UrlPattern.parse(pattern).matches(canonical_url(url))


@pytest.mark.parametrize("text", NONE)
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^"):
        UrlPattern.parse(text)


@pytest.mark.parametrize("text", NONE)
def test_a_bad_pattern_is_refused_with_the_settings(text: str) -> None:
    values = {"replicas": ["http://a"], "admin": {"allowed_urls": ["http://ok", text]}}
    with pytest.raises(ValueError, match=r"a pattern such as"):
        Settings.model_validate(values)


@pytest.mark.parametrize(
    ("pattern", "address", "named"),
    [
        ("169.254.0.0/16", "169.254.169.254", True),
        ("169.254.*", "169.254.169.254", True),
        ("http://169.254.169.254:80", "169.254.169.254", True),
        ("*", "169.254.169.254", False),
        ("169.*.example", "169.254.169.254", False),
        ("[fe80::*]", "fe80::1", True),
        ("10.0.0.0/8", "fe80::1", False),
    ],
)
def test_only_patterns_of_addresses_name_addresses(pattern: str, address: str, named: bool) -> None:
    assert UrlPattern.parse(pattern).names(ipaddress.ip_address(address)) is named


@pytest.mark.parametrize("host", ["a", "127.1", "0x7f.1", "", "1.2.3.4.5"])
def test_what_is_no_literal_address_is_a_name(host: str) -> None:
    assert address_of(host) is None
