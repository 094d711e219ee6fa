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


def open_session(connector: aiohttp.TCPConnector) -> aiohttp.ClientSession:
    """A client for probes or scrapes, outside the connector that requests use."""
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
    )
