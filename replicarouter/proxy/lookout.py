"""Looks for clients that ask again, between the tokens of others."""

import select
from collections.abc import Callable

from replicarouter.clock import Clock

AWHILE = 0.0005
"""Seconds in which a client that goes on by itself asks again; over loopback nine in ten do within 0.4 ms.
With who is farther away, or takes longer, each token in this time costs a look in vain."""


class Lookout:
    """Whose stream has just ended may ask again at once. The event loop reads what has come in the order in
    which it came, so that such a request would wait behind a dozen tokens, which are in no hurry: each is
    followed by the next of its stream after many times as long. While anybody is `expected`, who passes on
    tokens is to `look` after each: that takes a fiftieth of what the token does.

    `expected` is to be read only. Times are on `clock`, in seconds.
    """

    __slots__ = ("_clock", "_ready", "_register", "_unregister", "expected")

    def __init__(self, clock: Clock) -> None:
        poll = select.poll()
        self._ready, self._register, self._unregister = poll.poll, poll.register, poll.unregister
        self._clock = clock
        self.expected: dict[int, tuple[Callable[[], None], float]] = {}

    def expect(self, descriptor: int, come: Callable[[], None]) -> None:
        """Call `come` when something can be read there, if that is soon; once."""
        self._register(descriptor, select.POLLIN)
        self.expected[descriptor] = come, self._clock() + AWHILE

    def forget(self, descriptor: int) -> None:
        """Expect nothing there any more: at the latest before it is closed."""
        if self.expected.pop(descriptor, None) is not None:
            self._unregister(descriptor)

    def look(self) -> None:
        """Call those for whom something has come, and forget who has not asked in time."""
        expected = self.expected
        for descriptor, _ in self._ready(0):
            entry = expected.pop(descriptor, None)
            if entry is not None:  # What one does may have another one forgotten.
                self._unregister(descriptor)
                entry[0]()
        # The first is the one that was expected longest.
        for descriptor, (_, until) in expected.items():
            if until < self._clock():
                self.forget(descriptor)
            break
