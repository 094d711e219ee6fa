import pytest

from replicarouter.simulator.faults import Fault, Place
from replicarouter.simulator.faulty_writer import FaultyWriter

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
CHUNKS = [b"5\r\nfirst\r\n", b"6\r\nsecond\r\n", b"5\r\nthird\r\n", b"0\r\n\r\n"]


class Scene:
    """Writes a stream or a whole answer through the writer; `told` is what reached the connection."""

    def __init__(self, kind: str, at: Place) -> None:
        self.written: list[bytes] = []
        self.fate: list[str] = []
        self.write = FaultyWriter(Fault(kind=kind, at=at), self, self.written.append)

    def fall_silent(self) -> None:
        self.fate.append("silent")

    def reset(self) -> None:
        self.fate.append("rst")

    def hang_up(self) -> None:
        self.fate.append("fin")

    @property
    def told(self) -> bytes:
        return b"".join(self.written)

    def stream(self) -> None:
        for data in (HEAD, *CHUNKS):
            self.write(data)


FATES = [("hang", "silent"), ("reset", "rst"), ("close", "fin")]


@pytest.mark.parametrize(("kind", "fate"), FATES)
@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_stream_ends_after_so_many_chunks(kind: str, fate: str, after: int) -> None:
    scene = Scene(kind, after)
    scene.stream()
    assert scene.told == HEAD + b"".join(CHUNKS[:after])
    assert scene.fate == [fate]


@pytest.mark.parametrize(("kind", "fate"), FATES)
def test_answer_ends_within_its_head(kind: str, fate: str) -> None:
    scene = Scene(kind, "head")
    scene.stream()
    assert scene.told == HEAD[: len(scene.told)]
    assert 0 < len(scene.told) < len(HEAD) - 4
    assert scene.fate == [fate]


def test_stream_that_is_shorter_goes_through_whole() -> None:
    scene = Scene("reset", 99)
    scene.stream()
    assert scene.told == HEAD + b"".join(CHUNKS)
    assert scene.fate == []


@pytest.mark.parametrize("after", [0, 1, 7])
def test_whole_answer_is_cut_within_its_body(after: int) -> None:
    scene = Scene("close", after)
    scene.write(HEAD + b"0123456789")
    assert scene.told == HEAD + (b"01234" if after else b"")
    assert scene.fate == ["fin"]


def test_garbage_is_a_head_that_is_none_or_a_chunk_that_is_none() -> None:
    head, chunk = Scene("garbage", "head"), Scene("garbage", 2)
    head.stream()
    chunk.stream()
    assert head.told.startswith(b"HTTP/1.1 abc")
    assert chunk.told.startswith(HEAD + CHUNKS[0] + CHUNKS[1] + b"xyz\r\n")
    assert head.fate == chunk.fate == ["fin"]
