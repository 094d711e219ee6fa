"""The caller's address is the last one that somebody trusted has seen."""

from ipaddress import ip_network

import pytest

from replicarouter.access.proxies import Proxies

PROXIES = Proxies([ip_network("10.0.0.0/8"), ip_network("2001:db8::/32")])
PEER = "10.0.0.1"


@pytest.mark.parametrize(
    ("forwarded", "client"),
    [
        ([], PEER),
        (["203.0.113.1"], "203.0.113.1"),
        (["198.51.100.9, 203.0.113.1"], "203.0.113.1"),
        (["198.51.100.9", "203.0.113.1, 10.2.0.1"], "203.0.113.1"),
        (["198.51.100.9", "203.0.113.1", "10.2.0.1", "2001:db8::7"], "203.0.113.1"),
        (["127.0.0.1, 203.0.113.1"], "203.0.113.1"),
        (["10.9.9.9, 10.2.0.1"], "10.9.9.9"),
        (["203.0.113.1:5123"], "203.0.113.1"),
        (["[2001:DB9::1]:5123"], "2001:db9::1"),
        (["[2001:db9::1]"], "2001:db9::1"),
        (["::ffff:203.0.113.1"], "203.0.113.1"),
        (["\t203.0.113.1 "], "203.0.113.1"),
        (["nonsense, 203.0.113.1"], "203.0.113.1"),
    ],
)
def test_rightmost_stranger_is_the_client(forwarded: list[str], client: str) -> None:
    assert PROXIES.client_of(forwarded, PEER) == client


@pytest.mark.parametrize("entry", ["", "unknown", "203.0.113.1, unknown", "203.0.113.1,", "1.2.3", "a\udcff"])
def test_peer_counts_where_the_list_makes_no_sense(entry: str) -> None:
    assert PROXIES.client_of([entry], PEER) == PEER


@pytest.mark.parametrize("peer", ["203.0.113.5", "127.0.0.1", "", "socket"])
def test_a_peer_that_is_not_trusted_is_the_client(peer: str) -> None:
    assert not PROXIES.trusts(peer)
    assert PROXIES.client_of(["198.51.100.9"], peer) == peer


def test_an_ipv4_proxy_is_known_on_an_ipv6_socket_too() -> None:
    assert PROXIES.trusts("::ffff:10.1.1.1")
    assert PROXIES.trusts("2001:db8::1")


def test_nobody_is_trusted_unless_said() -> None:
    assert not Proxies()
    assert not Proxies().trusts("127.0.0.1")
    assert PROXIES
