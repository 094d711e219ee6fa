"""What the tests of several folders share: a whole router in front of scripted replicas."""

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio

from tests.fakes.replica import FakeReplica
from tests.fakes.running import RunningRouter, StartRouter
from tests.fakes.workers import WORKERS, WorkersRouter


@pytest.fixture
def workers() -> int:
    """How many processes a router has; 0: it runs on the test's own loop."""
    return WORKERS


@pytest_asyncio.fixture
async def start_router(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, workers: int
) -> AsyncIterator[StartRouter]:
    """Afterwards all clients leave, and the ledger must settle with no error in the log."""
    routers: list[RunningRouter] = []
    served: list[WorkersRouter] = []
    fakes: list[FakeReplica] = []
    async with AsyncExitStack() as stack:

        async def start(
            *replicas: FakeReplica | str | dict[str, Any], ready: int | None = None, **options: Any
        ) -> RunningRouter:
            started = [replica for replica in replicas if isinstance(replica, FakeReplica)]
            for replica in started:
                fakes.append(replica)
                stack.push_async_callback(replica.stop)
                await replica.listen()
            if workers:
                served.append(await WorkersRouter.start(replicas, tmp_path, workers=workers, **options))
                router = cast(RunningRouter, served[-1])
            else:
                router = await RunningRouter.start(replicas, tmp_path, **options)
            routers.append(router)
            stack.push_async_callback(router.stop)
            stack.push_async_callback(router.leave)
            await router.until_ready(len(started) if ready is None else ready)
            return router

        yield start
        for router in routers:
            await router.leave()
            if not router.stopped:
                await router.settled()
    assert [fault for replica in fakes for fault in replica.faults] == []
    assert [record for record in caplog.get_records("call") if record.levelno >= logging.ERROR] == []
    assert [complaint for one in served for complaint in one.complaints] == []
