"""What becomes of a body that did not come with its head, by what must be known of it."""

import asyncio

import pytest

from replicarouter.errors import InvalidRequest, Overloaded, RouterError, UnsupportedEncoding
from replicarouter.protocol.endpoints import Body as Kind
from replicarouter.protocol.endpoints import Endpoint, Endpoints
from replicarouter.protocol.request import LARGE, InferenceRequest
from replicarouter.proxy.aiohttp_internals import InboundRequest
from replicarouter.proxy.body import Body
from replicarouter.proxy.intake import Asked, Intake
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
