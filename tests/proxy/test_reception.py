"""What is noted of a caller when he comes in."""

import asyncio

from pydantic import SecretStr

from replicarouter.access.cors import Cors
from replicarouter.access.door import Door
from replicarouter.admission.priority import Priority
from replicarouter.errors import InvalidApiKey
from replicarouter.proxy.aiohttp_internals import InboundRequest
from replicarouter.proxy.caller import Caller
from replicarouter.proxy.reception import Reception
from replicarouter.settings import NamedKey, PriorityHeader
from tests.fakes.client import HOST, request
from tests.proxy.conftest import StartFront, answer

URGENCY = PriorityHeader.model_validate({"name": "X-Urgency", "values": ["high", "low"]})


def a_reception(*keys: str, origins: tuple[str, ...] = ()) -> Reception:
    named = [NamedKey(f"name of {key}", SecretStr(key)) for key in keys]
    return Reception(Door(named), Cors(origins), Priority(URGENCY, keys_needed=bool(keys)))


async def welcomed(
    start_front: StartFront, reception: Reception, path: str = "/v1/embeddings", **fields: str
) -> tuple[Caller, InvalidApiKey | None]:
    """What the reception makes of one request with these header fields (`_` for `-`)."""
    seen: asyncio.Future[tuple[Caller, InvalidApiKey | None]] = asyncio.get_running_loop().create_future()

    async def handle(inbound: InboundRequest) -> bool:
        caller = Caller(inbound.client, True, True)
        seen.set_result((caller, reception.welcome(inbound.message, path, caller)))
        return answer(inbound)

    front = await start_front(handle)
    client = await front.connect()
    headers = {name.replace("_", "-"): value for name, value in fields.items()}
    await client.ask(request("POST", path, b"{}", headers))
    return await seen


async def test_without_keys_a_caller_is_its_address(start_front: StartFront) -> None:
    caller, refusal = await welcomed(start_front, a_reception(), X_Urgency="high", Authorization="Bearer x")
    assert refusal is None
    assert (caller.name, caller.priority, caller.keys_stop_here, caller.cors) == (HOST, 0, False, b"")


async def test_with_keys_a_caller_is_the_name_of_its_key(start_front: StartFront) -> None:
    caller, refusal = await welcomed(
        start_front, a_reception("k1", "k2"), X_Urgency="low", Authorization="Bearer k2"
    )
    assert refusal is None
    assert (caller.name, caller.priority, caller.keys_stop_here) == ("name of k2", 1, True)


async def test_a_wrong_key_is_refused(start_front: StartFront) -> None:
    _, refusal = await welcomed(start_front, a_reception("k1"), Authorization="Bearer k2")
    assert isinstance(refusal, InvalidApiKey)


async def test_health_needs_no_key(start_front: StartFront) -> None:
    caller, refusal = await welcomed(start_front, a_reception("k1"), "/health")
    assert refusal is None
    assert caller.name == HOST


async def test_a_page_is_told_that_it_may_read_even_a_refusal(start_front: StartFront) -> None:
    origin = "https://chat.example"
    caller, refusal = await welcomed(start_front, a_reception("k1", origins=(origin,)), Origin=origin)
    assert refusal is not None
    assert b"Access-Control-Allow-Origin: https://chat.example\r\n" in caller.cors
