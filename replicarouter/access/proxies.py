"""Which address a request really comes from, when proxies that we trust stand before us."""

import ipaddress
import re
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_WITH_PORT = re.compile(r"\[([0-9A-Fa-f:.]+)\](?::\d{1,5})?|(\d+\.\d+\.\d+\.\d+):\d{1,5}")


class Proxies:
    """The networks whose `X-Forwarded-For` is believed; none by default."""

    def __init__(self, networks: Sequence[Network] = ()) -> None:
        self._networks = tuple(networks)

    def __bool__(self) -> bool:
        return bool(self._networks)

    def trusts(self, peer: str) -> bool:
        """Whether the connection comes from one of them; `peer` is a socket's address."""
        address = _address(peer)
        return address is not None and self._holds(address)

    def client_of(self, forwarded: Sequence[str], peer: str) -> str:
        """The address of the caller, for a connection from `peer`.

        `forwarded`: the values of its `X-Forwarded-For` fields. Each proxy appends whom it heard, so
        the rightmost address that is not a trusted proxy is the last that somebody trusted has seen;
        what stands left of it may be invented. The peer itself counts where the list makes no sense.
        """
        if not forwarded or not self.trusts(peer):
            return peer
        client = peer
        for entry in reversed(",".join(forwarded).split(",")):
            address = _address(entry.strip(" \t"))
            if address is None:
                return peer
            client = str(address)
            if not self._holds(address):
                break
        return client

    def _holds(self, address: Address) -> bool:
        return any(address in network for network in self._networks)


def _address(text: str) -> Address | None:
    """Read an address, with or without a port; an IPv4 one that came over an IPv6 socket as what it is."""
    with_port = _WITH_PORT.fullmatch(text)
    if with_port is not None:
        text = with_port[1] or with_port[2]
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
