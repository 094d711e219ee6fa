"""A connector of aiohttp's that connects in one step, where that is all it takes.

It leans on a name that aiohttp does not document; `tests/fleet/test_one_step.py` fails when a release changes
it.
"""

import asyncio
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler


class OneStepConnector(aiohttp.TCPConnector):
    """Where there is one address to try, and no TLS, it is left to the event loop: there is nothing to choose
    from, and a connection takes two thirds of the processor's time and fewer system calls."""

    async def _wrap_create_connection(self, *args: Any, **options: Any) -> tuple[Any, ResponseHandler]:
        addresses = options["addr_infos"]
        if len(addresses) != 1 or options.get("ssl"):
            return await super()._wrap_create_connection(*args, **options)
        (factory,) = args
        host, port = addresses[0][4][:2]
        try:
            async with asyncio.timeout(options["timeout"].sock_connect):
                made: tuple[Any, ResponseHandler] = await self._loop.create_connection(factory, host, port)
                return made
        except OSError as error:
            if isinstance(error, TimeoutError) and error.errno is None:
                raise  # The limit's: the operating system's has a number.
            raise aiohttp.ClientConnectorError(options["req"].connection_key, error) from error
