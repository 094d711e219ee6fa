"""Patterns that say which URLs a replica may have. Each part of a URL is matched whole and for itself, so
that `http://gpu*` or `10.0.0.*` cannot be met by a name that somebody else owns."""

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator

from replicarouter.settings.values import accepts

Address = IPv4Address | IPv6Address

_SHAPE = re.compile(
    r"(?P<host>\[[0-9A-Fa-f:.*]+\]|[A-Za-z0-9._*-]+)(?::(?P<port>[0-9*]+))?(?P<path>/[!-~]*)?", re.ASCII
)
_NUMERIC = re.compile(r"\[.*\]|(?=.*[0-9])[0-9.*]+")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_ANY = "*"


@dataclass(frozen=True, slots=True)
class UrlPattern:
    """One pattern: `[scheme://]host[:port][/path]` or `[scheme://]network`.

    What is left out may be anything. A `*` stands for any port, any end of a path, and in a host name for
    part of one label; `*.example` is every name below, `*` every host. A network, and a pattern of digits
    such as `10.0.0.*`, is met by addresses only, never by names.
    """

    scheme: str
    host: re.Pattern[str] | None
    numeric: bool
    network: IPv4Network | IPv6Network | None
    port: re.Pattern[str]
    path: re.Pattern[str]

    @classmethod
    def parse(cls, text: str) -> "UrlPattern":
        """Read a pattern; raises ValueError for what is none."""
        scheme, separator, rest = text.partition("://")
        scheme, rest = (scheme.lower(), rest) if separator else (_ANY, text)
        if scheme not in {*_DEFAULT_PORTS, _ANY}:
            raise ValueError(text)
        network = _network(rest)
        if network is not None:
            return cls(scheme, None, True, network, _glob(_ANY, ".*"), _glob(_ANY, ".*"))
        shape = _SHAPE.fullmatch(rest)
        if shape is None:
            raise ValueError(text)
        host, port, path = shape["host"].lower(), shape["port"] or _ANY, shape["path"]
        numeric = _NUMERIC.fullmatch(host) is not None
        return cls(
            scheme,
            _address_glob(host) if numeric else _name_glob(host),
            numeric,
            None,
            _glob(port, "[0-9]*"),
            _glob(_ANY if path is None else path.rstrip("/"), ".*"),
        )

    def matches(self, url: str) -> bool:
        """Tell whether a replica may have this URL, a canonical one."""
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or _DEFAULT_PORTS[parts.scheme]
        if self.scheme not in {parts.scheme, _ANY} or not self.port.fullmatch(str(port)):
            return False
        # `/base/*` means what is below /base, and /base itself.
        if not (self.path.fullmatch(parts.path) or self.path.fullmatch(f"{parts.path}/")):
            return False
        if self.numeric:
            address = address_of(host)
            return address is not None and self.names(address)
        return self.host is not None and self.host.fullmatch(host) is not None

    def names(self, address: Address) -> bool:
        """Tell whether the pattern is one of addresses, and this is among them."""
        if self.network is not None:
            return address in self.network
        return self.numeric and self.host is not None and self.host.fullmatch(str(address)) is not None


def address_of(host: str) -> Address | None:
    """Read a host that is an address; None when it is a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def _network(text: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(text, strict=False)
    except ValueError:
        return None


def _glob(text: str, star: str) -> re.Pattern[str]:
    return re.compile(star.join(re.escape(part) for part in text.split(_ANY)))


def _address_glob(host: str) -> re.Pattern[str]:
    address = address_of(host.strip("[]"))
    return _glob(str(address) if address else host.strip("[]"), "[0-9a-f.:]*")


def _name_glob(host: str) -> re.Pattern[str]:
    if host == _ANY:
        return re.compile(".*")
    below = host.startswith("*.")
    labels = _glob(host[2:] if below else host, "[^.]*").pattern
    return re.compile(rf"(?:[^.]+\.)+{labels}" if below else labels)


def _checked(text: str) -> str:
    UrlPattern.parse(text)
    return text


AllowedUrl = Annotated[
    str,
    AfterValidator(_checked),
    accepts("a pattern such as http://10.0.0.0/8, https://*.gpu.example:8000 or http://127.0.0.1:*"),
]
