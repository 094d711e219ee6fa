"""`/sim/*` over real sockets: at the engine's port, and at one of its own."""

import json
from typing import Any

from replicarouter.simulator import EngineOptions, start_engines
from tests.fakes.client import Client, request
from tests.fakes.wire import eventually
from tests.simulator.conftest import Connect, Start
from tests.simulator.test_conditions import HEALTH, chat, refused


def post(**said: Any) -> bytes:
    return request("POST", "/sim/fault", json.dumps(said).encode())


async def test_engine_can_be_told_at_its_own_port(start: Start, connect: Connect) -> None:
    engine = await start()
    client = await connect(engine)
    assert (await client.ask(post(kind="status", on="all"))).json()["faults"][0]["kind"] == "status"
    assert (await client.ask(HEALTH)).status == 503
    assert (await client.ask(request("GET", "/sim/fault"))).json()["hits"] == {"status": 1}
    assert (await client.ask(request("DELETE", "/sim/fault"))).json()["faults"] == []
    assert (await client.ask(HEALTH)).status == 200


async def test_control_port_answers_whatever_the_engine_does(start: Start, connect: Connect) -> None:
    engine = await start(control_port=0)
    assert engine.control_port not in (0, engine.port)
    control = await Client.connect(engine.control_port)
    try:
        assert (await control.ask(post(kind="refuse"))).status == 200
        assert await refused(engine)
        assert (await control.ask(post(kind="sigterm_hang"))).status == 200
        shown = (await control.ask(request("GET", "/sim/fault"))).json()
        assert [fault["kind"] for fault in shown["faults"]] == ["refuse", "sigterm_hang"]
        assert (await control.ask(request("DELETE", "/sim/fault"))).status == 200

        async def accepted() -> bool:
            return not await refused(engine)

        await eventually(accepted, "the engine accepts again")
        assert (await (await connect(engine)).ask(chat())).ended == "clean"
    finally:
        await control.closed()


async def test_control_port_serves_nothing_else(start: Start) -> None:
    engine = await start(control_port=0)
    control = await Client.connect(engine.control_port)
    try:
        assert (await control.ask(HEALTH)).status == 404
        assert (await control.ask(chat())).status == 404
    finally:
        await control.closed()
    assert engine.records.totals["received"] == 0


async def test_requests_are_told_by_their_nonce(start: Start, connect: Connect) -> None:
    engine = await start()
    client = await connect(engine)
    await client.ask(chat(headers={"x-soak-nonce": "n1", "x-request-id": "r1"}))
    await client.ask(chat(headers={"x-request-id": "r2"}, stream=False))
    shown = (await client.ask(request("GET", "/sim/requests"))).json()
    whole = {"received": 1, "started": 1, "finished": 1}
    assert shown["requests"] == {"n1": whole, "r2": whole}
    assert (shown["received"], shown["finished"]) == (2, 2)


async def test_a_journal_hears_of_every_event() -> None:
    lines: list[tuple[int, str, str]] = []
    options = EngineOptions(profile="instant", control_port=0)
    engines = await start_engines(options, 2, lambda *event: lines.append(event))
    try:
        client = await Client.connect(engines[1].port)
        await client.ask(chat(headers={"x-soak-nonce": "n1"}))
        await client.closed()
        assert len({engine.control_port for engine in engines}) == 2
    finally:
        for engine in engines:
            await engine.stop()
    port = engines[1].port
    assert lines == [(port, "n1", event) for event in ("received", "started", "finished")]
