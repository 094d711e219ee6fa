"""A peer's departure is seen although nothing is read from its connection."""

import pytest

from replicarouter.proxy.hung_up import hung_up
from tests.fakes.client import request
from tests.fakes.wire import Ending, eventually
from tests.proxy.conftest import StartFront, hang


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_it_is_seen_behind_bytes_that_nobody_has_read(start_front: StartFront, how: Ending) -> None:
    front = await start_front(hang)
    client = await front.connect()
    await client.send(request("GET", "/x"))
    await eventually(lambda: front.seen, "the handler runs")
    transport = front.seen[0].client.transport
    assert transport is not None
    transport.pause_reading()
    await client.send(b"unread")
    assert not hung_up(transport)
    client.leave(how)
    await eventually(lambda: hung_up(transport), "it is seen")
    transport.resume_reading()


def test_what_is_closed_has_nobody_at_its_other_end() -> None:
    assert hung_up(None)
