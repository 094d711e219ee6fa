"""Whether who is at the other end has left, where nothing is read that would tell."""

import asyncio
import select


def hung_up(transport: asyncio.Transport | None) -> bool:
    """Whether the peer has closed its side of a connection, be it with bytes before that are not read yet."""
    if transport is None:
        return True
    asked = select.poll()
    asked.register(transport.get_extra_info("socket").fileno(), select.POLLRDHUP)
    return bool(asked.poll(0))
