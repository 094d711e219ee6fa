"""Watches how long a relayed answer is silent: the idle limit, and comments that keep a client patient."""

import asyncio

from replicarouter.clock import Clock
from replicarouter.errors import IdleTimeout
from replicarouter.exchange import Exchange
from replicarouter.proxy.relay import Relay
from replicarouter.words import counted

KEEP_ALIVE = b": keep-alive\n\n"
"""A comment of server-sent events (WHATWG HTML, section 9.2): clients ignore it."""


class SilenceWatch:
    """One timer for one answer. `idle` and `comment_every` are seconds, 0 for never; silence counts only
    while the client takes what it is given."""

    __slots__ = ("_clock", "_comment_every", "_commented_at", "_exchange", "_idle", "_relay", "_timer")

    def __init__(
        self, relay: Relay, exchange: Exchange, clock: Clock, *, idle: float, comment_every: float
    ) -> None:
        self._relay = relay
        self._exchange = exchange
        self._clock = clock
        self._idle = idle
        self._comment_every = comment_every if relay.event_stream else 0.0
        self._commented_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._wait(min(self._idle or self._comment_every, self._comment_every or self._idle))

    def stop(self) -> None:
        """Watch no longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self, seconds: float) -> None:
        if seconds:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        now = self._clock()
        self._exchange.refresh()
        if self._relay.held:
            self._wait(self._idle or self._comment_every)
            return
        lefts: list[float] = []
        if self._idle:
            left = self._exchange.last_byte_at + self._idle - now
            if left <= 0:
                self._relay.fail(IdleTimeout(f"The replica was silent for {counted(self._idle, 'second')}."))
                return
            lefts.append(left)
        if self._comment_every:
            lefts.append(self._comment(now))
        self._wait(min(lefts))

    def _comment(self, now: float) -> float:
        """Write a comment if it is time and one can stand here; seconds until the next look."""
        quiet_since = max(self._exchange.last_byte_at, self._commented_at)
        left = quiet_since + self._comment_every - now
        if left > 0:
            return left
        if self._relay.insert(KEEP_ALIVE):
            self._commented_at = now
        return self._comment_every
