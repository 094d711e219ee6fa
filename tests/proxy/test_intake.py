"""What becomes of a body that did not come with its head, by what must be known of it."""

import asyncio
import gc
import json
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from replicarouter.affinity.reader import KeyReader
from replicarouter.errors import InvalidRequest, Overloaded, RouterError, UnsupportedEncoding
from replicarouter.protocol.endpoints import Body as Kind
from replicarouter.protocol.endpoints import Endpoint, Endpoints
from replicarouter.protocol.request import LARGE, InferenceRequest, Needs
from replicarouter.proxy.aiohttp_internals import InboundRequest
from replicarouter.proxy.body import Body
from replicarouter.proxy.intake import PASSED_ON, Asked, Intake
from replicarouter.proxy.memory import BodyMemory
from replicarouter.proxy.upload import Upload
from tests.fakes.client import Client, request
from tests.fakes.wire import eventually
from tests.proxy.conftest import StartFront, answer
from tests.scene import an_exchange

TABLE = Endpoints(["/added"])


def endpoint(path: str) -> Endpoint:
    found = TABLE.find(path)
    assert found is not None
    return found


def asked(
    kind: Kind = Kind.JSON,
    *,
    path: str = "/v1/completions",
    encoded: bool = False,
    must_read: bool = True,
    wants_keys: bool = False,
) -> Asked:
    return Asked(endpoint(path), kind, encoded=encoded, must_read=must_read, wants_keys=wants_keys)


class Receiving:
    """A handler that takes a body in, and what came of it; the clock is the loop's."""

    def __init__(self, what: Asked, *, room: int = 10**9) -> None:
        self.what = what
        self.memory = BodyMemory(room)
        self.body: Body | Upload | None = None
        self.inference: InferenceRequest | None = None
        self.error: RouterError | None = None

    async def __call__(self, one: InboundRequest) -> bool:
        intake = Intake(self.memory, asyncio.get_running_loop().time)
        try:
            self.body, self.inference = await intake.receive(
                one, self.what, an_exchange(), most=10**9, gap=5.0
            )
        except RouterError as error:
            self.error = error
        return answer(one)


async def begin(start_front: StartFront, receiving: Receiving, raw: bytes) -> Client:
    front = await start_front(receiving, lingering_time=0.1)
    client = await front.connect()
    client.wire.transport.write(raw)
    return client


def later(body: bytes, size: int | None = None) -> bytes:
    """The first bytes of a body that is longer."""
    return request("POST", "/x", headers={"Content-Length": str(size or len(body))}) + body


@pytest.mark.parametrize("size", [100, LARGE + 1, 5_000_000])
async def test_json_is_received_whole_and_read(start_front: StartFront, size: int) -> None:
    receiving = Receiving(asked())
    body = b'{"stream":true,"pad":"' + b"x" * size + b'","model":"m1"}'
    client = await begin(start_front, receiving, later(body))
    await client.answer()
    assert receiving.inference is not None
    assert (receiving.inference.model, receiving.inference.stream) == ("m1", True)
    assert receiving.body == Body(body, len(body))
    assert receiving.memory.held == len(body)
    receiving.body.drop()
    assert receiving.memory.held == 0


@pytest.mark.parametrize("start", [b"{bad", b'{"model":1,', b"["])
async def test_a_large_body_that_is_refused_is_let_go(start_front: StartFront, start: bytes) -> None:
    receiving = Receiving(asked())
    body = start + b'"pad":"' + b"x" * (LARGE + 1) + (b'"]' if start == b"[" else b'"}')
    client = await begin(start_front, receiving, later(body))
    await client.answer()
    assert isinstance(receiving.error, InvalidRequest)
    assert receiving.memory.held == 0


@pytest.mark.parametrize("wants_keys", [False, True])
async def test_others_run_while_a_large_body_is_read(start_front: StartFront, wants_keys: bool) -> None:
    """H28"""
    messages = b'{"role":"user","content":"a short message"},' * 100_000
    body = b'{"messages":[' + messages + b'{}],"model":"m1"}'
    receiving = Receiving(asked(wants_keys=wants_keys))
    client = await begin(start_front, receiving, later(body[:-1], len(body)))
    await eventually(lambda: receiving.memory.held == len(body), "it is on its way")
    await eventually(lambda: client.wire.transport.get_write_buffer_size() == 0, "nearly all has come")
    turns = 0
    client.wire.send_at_once(body[-1:])
    while receiving.inference is None:
        await asyncio.sleep(0)
        turns += 1
    assert turns > len(body) / 65536 / 2
    assert (receiving.inference.fields is not None) is wants_keys


@pytest.mark.parametrize("size", [100, LARGE + 1])
async def test_what_keys_are_made_of_is_kept(start_front: StartFront, size: int) -> None:
    receiving = Receiving(asked(wants_keys=True))
    body = b'{"prompt":"once","user":"u1","pad":"' + b"x" * size + b'","model":"m1"}'
    client = await begin(start_front, receiving, later(body))
    await client.answer()
    assert receiving.inference is not None
    assert receiving.inference.fields is not None
    assert (receiving.inference.fields["prompt"], receiving.inference.fields["user"]) == ("once", "u1")


PASSING = {
    "a form where one model is served": asked(Kind.FORM, must_read=False),
    "a compressed form there": asked(Kind.FORM, encoded=True, must_read=False),
    "anything on an added path there": asked(Kind.OPTIONAL, path="/added", must_read=False),
}


@pytest.mark.parametrize("what", PASSING.values(), ids=PASSING)
async def test_what_nobody_has_to_read_is_not_waited_for(start_front: StartFront, what: Asked) -> None:
    receiving = Receiving(what)
    await begin(start_front, receiving, later(b"some", 1_000_000))
    await eventually(lambda: receiving.body, "it can go on")
    assert isinstance(receiving.body, Upload)
    assert receiving.inference is not None
    assert receiving.inference.model is None
    assert receiving.body.length == 1_000_000


async def test_a_form_is_waited_for_until_it_names_its_model(start_front: StartFront) -> None:
    receiving = Receiving(asked(Kind.FORM))
    start = b"--b\r\nContent-Disposition: form-data; name=model\r\n\r\nm1\r\n--"
    client = await begin(start_front, receiving, later(start, 1_000_000))
    await eventually(lambda: receiving.memory.held == len(start), "it has come")
    assert receiving.body is None
    await client.send(b"b\r\n")
    await eventually(lambda: receiving.body, "it can go on")
    assert isinstance(receiving.body, Upload)
    assert receiving.inference is not None
    assert receiving.inference.model == "m1"
    receiving.body.drop()
    assert receiving.memory.held == 0


async def test_a_compressed_form_is_refused_where_its_model_decides(start_front: StartFront) -> None:
    receiving = Receiving(asked(Kind.FORM, encoded=True))
    await begin(start_front, receiving, later(b"\x1f\x8b", 1_000_000))
    await eventually(lambda: receiving.error, "it is refused")
    assert isinstance(receiving.error, UnsupportedEncoding)


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_that_memory_has_no_room_for_is_refused(start_front: StartFront, chunked: bool) -> None:
    receiving = Receiving(asked(), room=100_000)
    body = b'{"model":"m1","pad":"' + b"x" * 500_000 + b'"}'
    await begin(start_front, receiving, request("POST", "/x", body, chunked=chunked))
    await eventually(lambda: receiving.error, "it is refused")
    assert isinstance(receiving.error, Overloaded)
    assert receiving.memory.held == 0


async def test_a_client_that_leaves_in_its_form_leaves_nothing(start_front: StartFront) -> None:
    receiving = Receiving(asked(Kind.FORM))
    client = await begin(start_front, receiving, later(b"--b\r\n" + b"x" * 1000, 1_000_000))
    await eventually(lambda: receiving.memory.held, "it has begun")
    client.leave()
    await eventually(lambda: receiving.memory.held == 0, "what had come is let go")


EIGHT = 8 * 2**20
ROW = b'{"role":"user","content":"a message with a \\"quoted\\" word\\n"},'
BODIES: dict[str, Callable[[], bytes]] = {
    "one huge text": lambda: b'{"messages":[{"role":"user","content":"' + b"x" * EIGHT + b'"}]}',
    "escapes": lambda: b'{"messages":[{"role":"user","content":"' + b'\\"' * (EIGHT // 2) + b'"}]}',
    "deep": lambda: b'{"messages":' + b"[" * (EIGHT // 2) + b"]" * (EIGHT // 2) + b"}",
    "empty lists": lambda: b'{"messages":[' + b"[]," * (EIGHT // 3) + b"1]}",
    "numbers": lambda: b'{"prompt":[' + b"1," * (EIGHT // 2) + b"1]}",
    "messages": lambda: b'{"messages":[' + ROW * (EIGHT // len(ROW)) + b"{}]}",
    "fields": lambda: json.dumps({f"field{number}": 1 for number in range(EIGHT // 32)}).encode(),
    "a mebibyte of lists": lambda: b'{"messages":[' + b"[]," * (2**20 // 3) + b"1]}",
    "a quarter of that": lambda: b'{"messages":[' + b"[]," * (2**18 // 3 - 9) + b"1]}",
    "a text among lists": lambda: b'{"x":"' + b"x" * EIGHT + b'","messages":[' + b"[]," * 2**18 + b"1]}",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_no_body_holds_up_others(start_front: StartFront, body: Callable[[], bytes]) -> None:
    """H28: the processor's time between two turns of the loop, while one is received, read and understood."""
    receiving = Receiving(asked(must_read=False, wants_keys=True))
    keys = KeyReader((), stick_to_api_key=False)
    raw = later(body())
    front = await start_front(receiving, lingering_time=0.1)
    client = await front.connect()
    longest = 0.0
    client.wire.transport.write(raw)
    # As `serve` does: what lives as long as the process is not looked at.
    gc.collect()
    gc.freeze()
    while receiving.inference is None and receiving.error is None:
        begun = time.thread_time()
        await asyncio.sleep(0)
        longest = max(longest, time.thread_time() - begun)
    gc.unfreeze()
    assert receiving.inference is not None
    for needs in (Needs.SESSION | Needs.HEAD, Needs.BLOCKS):
        begun = time.thread_time()
        keys.read(replace(receiving.inference), front.seen[0].message.headers, needs)
        longest = max(longest, time.thread_time() - begun)
    assert longest < 0.1


@pytest.mark.parametrize("size", [PASSED_ON, PASSED_ON + 2, 5_000_000])
@pytest.mark.parametrize("may", [True, False])
async def test_large_json_goes_on_where_it_may(start_front: StartFront, size: int, may: bool) -> None:
    named: list[str | None] = []

    def may_pass(model: str | None) -> bool:
        named.append(model)
        return may

    receiving = Receiving(replace(asked(must_read=False), may_pass=may_pass))
    body = b'{"model":"m1","pad":"' + b"x" * (size - 23) + b'"}'
    await begin(start_front, receiving, later(body)[:-1])
    if not may or size == PASSED_ON:
        await eventually(lambda: receiving.memory.held, "it has begun")
        assert receiving.body is None
        return
    await eventually(lambda: receiving.body, "it can go on")
    assert isinstance(receiving.body, Upload)
    assert receiving.inference is not None
    assert (receiving.inference.model, named) == ("m1", [None, "m1"])
    assert PASSED_ON < receiving.memory.held <= len(body)
    receiving.body.drop()
    assert receiving.memory.held == 0
