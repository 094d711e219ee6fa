"""Which URLs may join through the admin API."""

import socket

import pytest

from replicarouter.admin.urls import UrlRule
from replicarouter.errors import InvalidRequest
from replicarouter.settings.replica import canonical_url

MAIN, ADMIN = 18080, 18081


async def refusal(url: str, *patterns: str) -> str:
    """Why a URL may not join; empty when it may. No pattern: none are configured."""
    rule = UrlRule(patterns or None, lambda: (MAIN, ADMIN))
    try:
        await rule.check(canonical_url(url))
    except InvalidRequest as error:
        return error.message
    return ""


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8000",
        "https://10.0.0.1",
        "http://192.0.2.1:18080",
        "http://localhost:8000/base%20path",
        "http://[fd00::1]:8000",
        "http://nobody.invalid:18080",
    ],
)
async def test_any_url_may_join_while_nothing_is_configured(url: str) -> None:
    assert await refusal(url) == ""


OWN = [
    "http://127.0.0.1:{}",
    "http://127.0.0.1:{}/base",
    "https://127.0.0.1:{}",
    "http://127.8.8.8:{}",
    "http://localhost:{}",
    "http://LOCALHOST:{}",
    "http://127.1:{}",
    "http://2130706433:{}",
    "http://0:{}",
    "http://0.0.0.0:{}",
    "http://[::1]:{}",
    "http://[::]:{}",
    "http://[::ffff:127.0.0.1]:{}",
    "http://[64:ff9b::7f00:1]:{}",
]


@pytest.mark.parametrize("url", OWN)
@pytest.mark.parametrize("port", [MAIN, ADMIN])
async def test_the_router_is_no_replica_of_itself(url: str, port: int) -> None:
    assert "the router itself" in await refusal(url.format(port))
    assert "the router itself" in await refusal(url.format(port), "*", "127.0.0.0/8", "::/0")


async def test_other_addresses_of_this_machine_are_the_router_too() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but loopback")
        address = probe.getsockname()[0]
    assert "the router itself" in await refusal(f"http://{address}:{MAIN}")
    assert await refusal(f"http://{address}:{MAIN + 10}") == ""


METADATA = [
    "http://169.254.169.254",
    "http://169.254.1.1:8000",
    "http://2852039166",
    "http://0xa9fea9fe",
    "http://[::ffff:169.254.169.254]",
    "http://[64:ff9b::a9fe:a9fe]",
    "http://[fe80::1]:8000",
    "http://[fd00:ec2::254]",
    "http://[fd20:ce::254]",
    "http://100.100.100.200",
    "http://168.63.129.16",
]


@pytest.mark.parametrize("url", METADATA)
async def test_metadata_addresses_are_refused_unless_named(url: str) -> None:
    assert "metadata" in await refusal(url)
    assert "metadata" in await refusal(url, "*")


@pytest.mark.parametrize(
    ("url", "pattern"),
    [
        ("http://169.254.1.1:8000", "http://169.254.1.1:8000"),
        ("http://169.254.1.1:8000", "169.254.0.0/16"),
        ("http://[fe80::1]:8000", "fe80::/10"),
    ],
)
async def test_a_metadata_address_that_is_named_may_join(url: str, pattern: str) -> None:
    assert await refusal(url, pattern) == ""


@pytest.mark.parametrize("url", ["http://10.1.0.1", "http://b.example", "http://a.example.evil.invalid"])
async def test_what_no_pattern_allows_is_refused(url: str) -> None:
    assert "admin.allowed_urls" in await refusal(url, "10.0.0.0/16", "http://a.example")


async def test_no_patterns_at_all_allow_nothing() -> None:
    with pytest.raises(InvalidRequest):
        await UrlRule([], lambda: ()).check("http://10.0.0.1")


@pytest.mark.parametrize("path", ["/%00", "/a%0d%0a", "/%7f", "/%", "/%4", "/%zz", "/a%1Fb"])
async def test_control_characters_have_no_place_in_a_path(path: str) -> None:
    assert "control character" in await refusal(f"http://10.0.0.1{path}")


async def test_a_name_that_cannot_be_one_is_refused() -> None:
    assert "not a host name" in await refusal(f"http://{'a' * 64}.example")
