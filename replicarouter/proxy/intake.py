"""Takes in a body that did not come with its head: whole, or to be passed on while it arrives."""

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from replicarouter.clock import Clock
from replicarouter.errors import UnsupportedEncoding
from replicarouter.exchange import Exchange
from replicarouter.protocol.endpoints import Body as Kind
from replicarouter.protocol.endpoints import Endpoint
from replicarouter.protocol.request import (
    LARGE,
    NEEDS_PLAIN,
    InferenceRequest,
    early_model,
    understand,
    understand_large,
    understand_plain,
)
from replicarouter.proxy.arriving import Arriving
from replicarouter.proxy.body import Body, Gathering
from replicarouter.proxy.inbound import InboundRequest
from replicarouter.proxy.memory import BodyMemory
from replicarouter.proxy.upload import Upload

PASSED_ON = 65536
"""Bytes of JSON up to which a body is received whole and read, also when nobody needs to know it."""

LOOKED_FOR_MODEL = 4096
"""Bytes at the start of a larger one in which its model is looked for."""


def _never(model: str | None) -> bool:  # noqa: ARG001
    return False


@dataclass(frozen=True, slots=True)
class Asked:
    """What is known of a request before its body: `must_read` says that the model in it decides where it
    goes, `encoded` that it is compressed, `wants_keys` that some policy goes by what else it says.

    `may_pass` is asked when the body turns out to be large: whether it can go on while it arrives, if its
    first bytes name this model, or None.
    """

    endpoint: Endpoint
    kind: Kind
    encoded: bool
    must_read: bool
    wants_keys: bool = False
    may_pass: Callable[[str | None], bool] = _never

    @property
    def passes_through(self) -> bool:
        """Whether nobody needs the whole body here: files, and what only the engine understands."""
        return self.kind is Kind.FORM or (self.endpoint.added and not self.must_read)


class Intake:
    """Receives bodies that are still arriving; they share `memory`."""

    def __init__(self, memory: BodyMemory, clock: Clock) -> None:
        self.memory = memory
        self._clock = clock
        self._chance = Random()

    async def receive(
        self, request: InboundRequest, asked: Asked, exchange: Exchange, *, most: int, gap: float
    ) -> tuple[Body | Upload, InferenceRequest]:
        """The body, of at most `most` bytes without a silence of `gap` seconds, and what it asks for.

        The caller must `drop` it in the end. Raises what `Arriving` and `understand` raise, and `Overloaded`.
        """
        if asked.passes_through:
            upload = Upload(Arriving(request, most=most, gap=gap), self.memory, exchange, self._clock)
            return upload, await self._see(upload, asked)
        gathering = Gathering(Arriving(request, most=most, gap=gap), self.memory)
        try:
            passed = await self._begin(gathering, asked, exchange)
            if passed is not None:
                return passed
            body = await gathering.whole()
            exchange.bytes_in = len(body.data)
            return body, await _understand(asked, body.data, self._chance)
        except BaseException:
            gathering.drop()
            raise

    async def _begin(
        self, gathering: Gathering, asked: Asked, exchange: Exchange
    ) -> tuple[Upload, InferenceRequest] | None:
        """The body as an upload, when it is large and nobody needs the whole of it here."""
        arriving = gathering.arriving
        if (arriving.declared is not None and arriving.declared <= PASSED_ON) or not asked.may_pass(None):
            return None
        await gathering.begin(PASSED_ON)
        model = None if asked.encoded else early_model(gathering.start(LOOKED_FOR_MODEL))
        if arriving.ended or not asked.may_pass(model):
            return None
        upload = Upload(arriving, self.memory, exchange, self._clock, most_kept=sys.maxsize)
        upload.begin(*gathering.give_away())
        return upload, InferenceRequest(asked.endpoint, model)

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


async def _understand(asked: Asked, data: bytes, chance: Random) -> InferenceRequest:
    """Small bodies and plain ones at once; others in steps, so that streams go on meanwhile."""
    if len(data) <= LARGE or asked.encoded:
        return understand(asked.endpoint, asked.kind, data, encoded=asked.encoded, must_read=asked.must_read)
    plain = understand_plain(asked.endpoint, data, chance)
    await asyncio.sleep(0)
    if plain is not None:
        return plain
    steps = understand_large(asked.endpoint, data, wants_keys=asked.wants_keys)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            read: InferenceRequest = done.value
            return read
        await asyncio.sleep(0)
