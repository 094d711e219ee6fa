"""The port that workers will listen on: kept for them, so that nobody else gets it between two of them."""

import socket
from typing import Self

from replicarouter.errors import CannotListen
from replicarouter.settings import Settings


class Reservation:
    """Sockets bound to every address of `host`, which do not listen."""

    def __init__(self, port: int, sockets: list[socket.socket]) -> None:
        self.port = port
        self._sockets = sockets

    @classmethod
    def of(cls, host: str, port: int) -> Self:
        """Reserve `port`, or any with 0. Raises `CannotListen`, also when another router's workers have it:
        the operating system would let these and ours share it, and deal out clients between them."""
        sockets: list[socket.socket] = []
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for family, kind, protocol, _, address in dict.fromkeys(found):
                place = (address[0], port, *address[2:])
                _check_free(family, place)
                one = socket.socket(family, kind, protocol)
                sockets.append(one)
                if family == socket.AF_INET6:
                    one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                # Connections that have ended, of a router without workers, are in nobody's way; but who
                # comes later and says the same of itself must not get the port.
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                one.bind(place)
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
                port = one.getsockname()[1]
        except OSError as error:
            for one in sockets:
                one.close()
            raise CannotListen(host, port, error) from error
        return cls(port, sockets)

    def told(self, settings: Settings) -> Settings:
        """The settings for a worker: with the port that was found."""
        return settings.model_copy(update={"port": self.port})

    def close(self) -> None:
        """Let others have it."""
        for one in self._sockets:
            one.close()


def _check_free(family: int, place: tuple[str | int, ...]) -> None:
    """Raises `OSError` when somebody listens there, whoever it lets share the port."""
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        if family == socket.AF_INET6:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(place)
