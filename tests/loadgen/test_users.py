"""A closed loop of users, against the simulated engine and against servers that fail."""

import time

from replicarouter.loadgen.users import Users
from replicarouter.loadgen.workload import Workload
from replicarouter.simulator import EngineOptions, SimulatedEngine
from tests.fakes.client import HOST
from tests.fakes.replica import reply, sized
from tests.fakes.wire import eventually
from tests.loadgen.conftest import Serve


def users(port: int, count: int, *, answer_tokens: tuple[int, int] = (3, 9)) -> Users:
    workload = Workload(model="sim", answer_tokens=answer_tokens)
    return Users(HOST, port, count=count, workload=workload, clock=time.perf_counter)


async def test_each_user_asks_again_when_its_answer_has_ended() -> None:
    engine = SimulatedEngine(EngineOptions(speed=0))
    group = users(await engine.start(), 4)
    try:
        group.start()
        await eventually(lambda: group.tally.answered >= 20, "20 answers")
        assert group.tally.failed == 0
        assert len(group.tally.ttfts) >= 20
        assert len(engine.connections) == 4
        assert engine.running + engine.waiting <= 4
    finally:
        await group.stop()
        await engine.stop()
    assert group.tally.in_flight == 0
    assert group.tally.started == group.tally.answered + group.tally.cut


async def test_every_token_is_an_event() -> None:
    engine = SimulatedEngine(EngineOptions(speed=0))
    group = users(await engine.start(), 1, answer_tokens=(7, 7))
    try:
        group.start()
        await eventually(lambda: group.tally.answered >= 5, "5 answers")
    finally:
        await group.stop()
        await engine.stop()
    # beside its tokens a stream has the role, the usage and [DONE]
    assert group.tally.events // 10 in (group.tally.answered, group.tally.answered + 1)


async def test_stop_cuts_what_is_under_way() -> None:
    engine = SimulatedEngine(EngineOptions(speed=0.01))
    group = users(await engine.start(), 3)
    try:
        group.start()
        await eventually(lambda: engine.running == 3, "all are running")
        await group.stop()
        await eventually(lambda: engine.running == 0, "the engine has stopped generating")
        assert engine.aborted == 3
    finally:
        await engine.stop()
    assert (group.tally.cut, group.tally.in_flight) == (3, 0)


async def test_user_goes_on_after_a_failure(serve: Serve) -> None:
    replica = await serve(reply(sized(b"{}", status="503 Service Unavailable")))
    group = users(replica.port, 2)
    try:
        group.start()
        await eventually(lambda: group.tally.failures["status 503"] >= 4, "each has failed twice")
    finally:
        await group.stop()
    assert group.tally.answered == 0
