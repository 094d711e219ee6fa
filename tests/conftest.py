"""What the tests of several folders share: a whole router in front of scripted replicas."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.fakes.replica import FakeReplica
from tests.fakes.running import RunningRouter, StartRouter


@pytest_asyncio.fixture
async def start_router(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> AsyncIterator[StartRouter]:
    """Afterwards all clients leave, and the ledger must settle with no error in the log."""
    routers: list[RunningRouter] = []
    fakes: list[FakeReplica] = []

    async def start(*replicas: FakeReplica | str, ready: int | None = None, **options: Any) -> RunningRouter:
        started = [replica for replica in replicas if isinstance(replica, FakeReplica)]
        for replica in started:
            fakes.append(replica)
            await replica.listen()
        router = await RunningRouter.start(replicas, tmp_path, **options)
        routers.append(router)
        await router.until_ready(len(started) if ready is None else ready)
        return router

    try:
        yield start
        for router in routers:
            await router.leave()
            if not router.stopped:
                await router.settled()
        errors = [record for record in caplog.get_records("call") if record.levelno >= logging.ERROR]
        assert errors == []
    finally:
        for router in routers:
            await router.leave()
            await router.stop()
        for replica in fakes:
            await replica.stop()
