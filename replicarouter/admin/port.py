"""The operator's port: opened and closed with the router."""

from aiohttp import web

from replicarouter.errors import CannotListen

LINGER = 1.0
"""Seconds an operator's request may go on when the router stops."""


class AdminPort:
    """Serves one application on one address."""

    def __init__(self, application: web.Application) -> None:
        self._runner = web.AppRunner(
            application, access_log=None, handler_cancellation=True, shutdown_timeout=LINGER
        )

    @property
    def port(self) -> int:
        """The port it listens on; 0 before it is open."""
        return int(self._runner.addresses[0][1]) if self._runner.addresses else 0

    async def open(self, host: str, port: int) -> None:
        """Listen; port 0 takes a free one. Raises `CannotListen`, as when the port is taken."""
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port).start()
        except OSError as error:
            raise CannotListen(host, port, error) from error

    async def close(self) -> None:
        """Listen no more."""
        await self._runner.cleanup()
