"""Reading a whole answer of a replica, up to a limit."""

import aiohttp


async def read_whole(answer: aiohttp.ClientResponse, most: int) -> bytes:
    """The body as far as it goes, but no further than about `most` bytes."""
    parts: list[bytes] = []
    size = 0
    async for part in answer.content.iter_any():
        parts.append(part)
        size += len(part)
        if size >= most:
            break
    return b"".join(parts)
