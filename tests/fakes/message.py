"""HTTP/1 messages read raw from a `Wire`: the bytes as they came, and what they carry."""

from dataclasses import dataclass, field
from typing import Literal

from tests.fakes.wire import DEADLINE, PeerGone, Wire

LAST_CHUNK = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


@dataclass(frozen=True, slots=True)
class Head:
    """A request or response head: `raw` as received, its blank line included."""

    raw: bytes
    start: str
    fields: tuple[tuple[str, str], ...]

    @classmethod
    def parse(cls, raw: bytes) -> "Head":
        start, *lines = raw.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
        pairs = (line.partition(":") for line in lines)
        return cls(raw, start, tuple((name, value.strip()) for name, _, value in pairs))

    def all(self, name: str) -> list[str]:
        """Values of every field of this name, whatever the spelling."""
        return [value for field_name, value in self.fields if field_name.lower() == name.lower()]

    def get(self, name: str) -> str | None:
        """The value of the field that may come once; fails when it comes twice."""
        values = self.all(name)
        assert len(values) <= 1, f"{name} comes {len(values)} times: {values}"
        return values[0] if values else None

    @property
    def status(self) -> int:
        """Of a response."""
        return int(self.start.split(" ")[1])

    @property
    def names(self) -> set[str]:
        return {name.lower() for name, _ in self.fields}

    @property
    def framing(self) -> list[str]:
        """The fields that say where the body ends; a sound message has one at most."""
        return [
            f"{name}: {value}"
            for name, value in self.fields
            if name.lower() in {"content-length", "transfer-encoding"}
        ]


@dataclass(slots=True)
class Body:
    """A body: `raw` with its framing, `entity` without; `ended` is "dirty" if it was cut short."""

    framing: Literal["none", "length", "chunked", "close"] = "none"
    raw: bytes = b""
    entity: bytes = b""
    chunks: list[bytes] = field(default_factory=list)
    trailers: bytes = b""
    ended: Literal["clean", "dirty"] = "clean"


async def read_head(wire: Wire, deadline: float = DEADLINE) -> Head:
    return Head.parse(await wire.read_until(b"\r\n\r\n", deadline))


async def read_body(wire: Wire, head: Head, *, response: bool, deadline: float = DEADLINE) -> Body:
    """The body that belongs to `head`; a cut is not an error here but `ended == "dirty"`."""
    if (head.get("transfer-encoding") or "").lower() == "chunked":
        return await _read_chunked(wire, deadline)
    length = head.get("content-length")
    if length is not None:
        return await _read_length(wire, int(length), deadline)
    if response and head.status not in {204, 304} and head.status >= 200:
        return await _read_close(wire, deadline)
    return Body()


async def _read_length(wire: Wire, length: int, deadline: float) -> Body:
    try:
        data = await wire.read_exactly(length, deadline)
    except PeerGone as gone:
        return Body("length", gone.got, gone.got, ended="dirty")
    return Body("length", data, data)


async def _read_close(wire: Wire, deadline: float) -> Body:
    data = await wire.read_to_end(deadline)
    return Body("close", data, data, ended="clean" if wire.ending == "fin" else "dirty")


async def _read_chunked(wire: Wire, deadline: float) -> Body:
    body = Body("chunked")
    raw: list[bytes] = []
    try:
        while True:
            raw.append(await wire.read_until(b"\r\n", deadline))
            size = int(raw[-1].split(b";")[0], 16)
            if size == 0:
                break
            raw.append(await wire.read_exactly(size + 2, deadline))
            body.chunks.append(raw[-1][:-2])
        while (line := await wire.read_until(b"\r\n", deadline)) != b"\r\n":
            raw.append(line)
            body.trailers += line
        raw.append(line)
    except PeerGone as gone:
        body.ended = "dirty"
        raw.append(gone.got)
    body.raw = b"".join(raw)
    body.entity = b"".join(body.chunks)
    return body
