"""How many file descriptors are left for connections. Where the operating system refuses, a client is never
told; so this process stops a little earlier."""

import resource
from collections.abc import Callable
from pathlib import Path
from typing import Self

SPARE = 32
"""Descriptors for what nobody counts: listeners, logs, files being read, bodies on disk."""

EACH_REPLICA = 3
"""Descriptors for the probes and scrapes of one replica."""

LEAST = 16
"""Connections that are tried in any case."""

KEPT = 8
"""One in so many is kept for clients who are told that there is no room."""


class Descriptors:
    """Counts connections against `most`. `count` names who has some: each says how many."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._users: list[Callable[[], int]] = []

    @classmethod
    def of_process(cls, *, replicas: int) -> Self:
        """What the limit of this process leaves beside what is open now and what `replicas` take."""
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        taken = len(list(Path("/dev/fd").iterdir())) + EACH_REPLICA * replicas + SPARE
        return cls(max(limit - taken, LEAST))

    def count(self, user: Callable[[], int]) -> None:
        """Count also the connections of `user`."""
        self._users.append(user)

    @property
    def left(self) -> int:
        """Connections that can still be opened."""
        return self.most - sum(user() for user in self._users)

    @property
    def kept(self) -> int:
        """Connections that are kept for clients who have to be refused."""
        return self.most // KEPT

    @property
    def scarce(self) -> bool:
        """Whether all that is left is kept: no request may open another connection."""
        return self.left <= self.kept
