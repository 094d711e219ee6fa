"""Takes in a body that did not come with its head: whole, or to be passed on while it arrives."""

import asyncio
from dataclasses import dataclass

from replicarouter.clock import Clock
from replicarouter.errors import UnsupportedEncoding
from replicarouter.exchange import Exchange
from replicarouter.protocol.endpoints import Body as Kind
from replicarouter.protocol.endpoints import Endpoint
from replicarouter.protocol.request import (
    LARGE,
    NEEDS_PLAIN,
    InferenceRequest,
    understand,
    understand_large,
)
from replicarouter.proxy.aiohttp_internals import InboundRequest
from replicarouter.proxy.body import Arriving, Body, receive_body
from replicarouter.proxy.memory import BodyMemory
from replicarouter.proxy.upload import Upload


@dataclass(frozen=True, slots=True)
class Asked:
    """What is known of a request before its body: `must_read` says that the model in it decides where it
    goes, `encoded` that it is compressed, `wants_keys` that some policy goes by what else it says."""

    endpoint: Endpoint
    kind: Kind
    encoded: bool
    must_read: bool
    wants_keys: bool = False

    @property
    def passes_through(self) -> bool:
        """Whether nobody needs the whole body here: files, and what only the engine understands."""
        return self.kind is Kind.FORM or (self.endpoint.added and not self.must_read)


class Intake:
    """Receives bodies that are still arriving; they share `memory`."""

    def __init__(self, memory: BodyMemory, clock: Clock) -> None:
        self.memory = memory
        self._clock = clock

    async def receive(
        self, request: InboundRequest, asked: Asked, exchange: Exchange, *, most: int, gap: float
    ) -> tuple[Body | Upload, InferenceRequest]:
        """The body, of at most `most` bytes without a silence of `gap` seconds, and what it asks for.

        The caller must `drop` it in the end. Raises what `Arriving` and `understand` raise, and `Overloaded`.
        """
        if asked.passes_through:
            upload = Upload(Arriving(request, most=most, gap=gap), self.memory, exchange, self._clock)
            return upload, await self._see(upload, asked)
        body = await receive_body(request, most=most, gap=gap, memory=self.memory)
        exchange.bytes_in = len(body.data)
        try:
            return body, await _understand(asked, body.data)
        except BaseException:
            body.drop()
            raise

    async def _see(self, upload: Upload, asked: Asked) -> InferenceRequest:
        """Wait until it is known where an upload goes: not at all, or up to the name of its model."""
        if not asked.must_read:
            return InferenceRequest(asked.endpoint, None)
        if asked.encoded:
            raise UnsupportedEncoding(NEEDS_PLAIN)
        try:
            field = await upload.find_model()
            return InferenceRequest(asked.endpoint, field.model, model_at=field.span)
        except BaseException:
            upload.drop()
            raise


async def _understand(asked: Asked, data: bytes) -> InferenceRequest:
    """Small bodies at once; large ones in steps, so that streams go on meanwhile."""
    if len(data) <= LARGE or asked.encoded:
        return understand(asked.endpoint, asked.kind, data, encoded=asked.encoded, must_read=asked.must_read)
    steps = understand_large(asked.endpoint, data, wants_keys=asked.wants_keys)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            inference: InferenceRequest = done.value
            return inference
        await asyncio.sleep(0)
