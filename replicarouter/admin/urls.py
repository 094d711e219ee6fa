"""Which URLs a replica may have that joins through the admin API: it will get users' prompts, and the
router connects to it from inside the operator's network."""

import asyncio
import re
import socket
from collections.abc import Callable, Collection, Sequence
from ipaddress import IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

from replicarouter.errors import InvalidRequest
from replicarouter.settings.url_pattern import Address, UrlPattern, address_of

RESOLVE_TIMEOUT = 2.0
"""Seconds for the name of a new replica to be resolved."""

_DEFAULT_PORTS = {"http": 80, "https": 443}

# Where clouds answer whoever asks with the credentials of the machine, beside 169.254.169.254:
# AWS over IPv6, https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html
# Google over IPv6, https://cloud.google.com/compute/docs/metadata/querying-metadata
# Alibaba, https://www.alibabacloud.com/help/en/ecs/user-guide/view-instance-metadata
# Azure, https://learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16
_METADATA = {
    ip_address(text) for text in ("fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "168.63.129.16")
}
_NAT64 = ip_network("64:ff9b::/96")

_ODD_ESCAPE = re.compile(r"%(?:[01][0-9A-F]|7F|(?![0-9A-F]{2}))", re.IGNORECASE)


class UrlRule:
    """Refuses URLs that no pattern allows, the router's own ports, and addresses of metadata services.

    `own_ports` are the ports this router listens on.
    """

    def __init__(self, patterns: Sequence[str] | None, own_ports: Callable[[], Collection[int]]) -> None:
        self._patterns = None if patterns is None else [UrlPattern.parse(text) for text in patterns]
        self._own_ports = own_ports

    async def check(self, url: str) -> None:
        """Let a canonical URL pass, or raise `InvalidRequest` with the reason.

        A name counts by the addresses it has now; one that has none yet may pass.
        """
        parts = urlsplit(url)
        if _ODD_ESCAPE.search(parts.path):
            raise InvalidRequest("url: the path holds an escape that is none, or a control character.")
        if self._patterns is not None and not any(pattern.matches(url) for pattern in self._patterns):
            raise InvalidRequest("url: no pattern of admin.allowed_urls allows this URL.")
        port = parts.port or _DEFAULT_PORTS[parts.scheme]
        for address in await _addresses(parts.hostname or "", port):
            if port in self._own_ports() and _is_local(address):
                raise InvalidRequest("url: this is the router itself.")
            if _answers_for_the_machine(address) and not self._named(address):
                raise InvalidRequest(
                    "url: link-local and metadata addresses are allowed only where "
                    "admin.allowed_urls names them by address."
                )

    def _named(self, address: Address) -> bool:
        return any(pattern.names(address) for pattern in self._patterns or ())


async def _addresses(host: str, port: int) -> set[Address]:
    """The addresses of a host; none for a name that is not known."""
    address = address_of(host)
    if address is not None:
        return {_plain(address)}
    try:
        async with asyncio.timeout(RESOLVE_TIMEOUT):
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except TimeoutError:
        raise InvalidRequest("url: its name is not resolved in time; try again.") from None
    except UnicodeError:
        raise InvalidRequest("url: its name is not a host name.") from None
    except OSError:
        return set()
    return {_plain(ip_address(row[4][0])) for row in found}


def _plain(address: Address) -> Address:
    """The address of version 4 that one of version 6 stands for, if it does; without its zone."""
    if not isinstance(address, IPv6Address):
        return address
    if address in _NAT64:
        return ip_address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or IPv6Address(int(address))


def _answers_for_the_machine(address: Address) -> bool:
    return address.is_link_local or address in _METADATA


def _is_local(address: Address) -> bool:
    """Whether a connection to this address stays on this machine: only its own can be bound."""
    if address.is_loopback or address.is_unspecified:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True
