"""The beginning of an upload comes back as it went in, from memory or from disk, and leaves nothing."""

import asyncio
import gc
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import pytest

from replicarouter.errors import Overloaded
from replicarouter.proxy.memory import BodyMemory
from replicarouter.proxy.spool import IN_MEMORY, PIECE, Spool
from tests.fakes.wire import eventually

PART = bytes(range(256)) * 400


async def content(spool: Spool) -> bytes:
    pieces: list[bytes] = []
    while piece := await spool.piece(len(pieces)):
        pieces.append(piece)
    return b"".join(pieces)


def left_in(folder: Path) -> tuple[list[Path], list[str]]:
    """The files of a folder, and those without a name that this process has open there."""
    opened = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            opened.append(str(link.readlink()))
    return list(folder.iterdir()), [name for name in opened if name.startswith(str(folder))]


@pytest.mark.parametrize("parts", [0, 1, 3, IN_MEMORY // len(PART), IN_MEMORY // len(PART) + 1, 100])
async def test_it_gives_what_it_was_given(parts: int) -> None:
    memory = BodyMemory(2 * IN_MEMORY)
    spool = Spool(memory)
    for _ in range(parts):
        await spool.add(PART)
    assert spool.size == parts * len(PART)
    assert spool.on_disk == (spool.size > IN_MEMORY)
    for _ in range(2):
        assert await content(spool) == parts * PART
    assert memory.held == (0 if spool.on_disk else spool.size)
    spool.drop()
    assert (memory.held, spool.size, await content(spool)) == (0, 0, b"")


async def test_it_goes_on_growing_on_disk() -> None:
    spool = Spool(BodyMemory(2 * IN_MEMORY))
    await spool.add(bytes(IN_MEMORY + 1))
    for number in range(3):
        await spool.add(b"%d" % number)
    assert (await content(spool))[-3:] == b"012"
    assert await spool.piece(spool.size // PIECE + 1) == b""
    spool.drop()


async def test_it_goes_to_disk_when_memory_has_no_room() -> None:
    memory = BodyMemory(len(PART))
    spool = Spool(memory)
    await spool.add(PART)
    assert not spool.on_disk
    await spool.add(PART)
    assert spool.on_disk
    assert memory.held == 0
    assert await content(spool) == 2 * PART
    spool.drop()


async def test_what_is_only_remembered_never_goes_to_disk() -> None:
    memory = BodyMemory(len(PART))
    spool = Spool(memory)
    assert spool.remember(PART)
    assert not spool.remember(b"x")
    assert (spool.size, memory.held, spool.on_disk) == (len(PART), len(PART), False)
    spool.drop()
    spool.drop()
    assert memory.held == 0


async def test_its_file_has_no_name_and_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    spool = Spool(BodyMemory(1))
    await spool.add(PART)
    named, opened = left_in(tmp_path)
    assert (named, len(opened)) == ([], 1)
    spool.drop()
    await eventually(lambda: left_in(tmp_path) == ([], []), "the file is closed")


async def test_who_stops_waiting_for_a_write_harms_nothing() -> None:
    """Threads cannot be stopped: what was begun ends before the next piece of work begins."""
    spool = Spool(BodyMemory(1))
    await spool.add(b"")
    big = os.urandom(1000) * 3000
    writing = spool.add(big)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await writing
    assert spool.size == len(big)
    assert await content(spool) == big
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await spool.add(big)
    spool.drop()


def full_disk() -> BinaryIO:
    return Path("/dev/full").open("r+b")


async def test_a_full_disk_is_overload(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", full_disk)
    spool = Spool(BodyMemory(1))
    with pytest.raises(Overloaded):
        await spool.add(PART)
    spool.drop()
    await asyncio.to_thread(gc.collect)
    assert caplog.records == []


async def test_no_place_for_files_is_overload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    spool = Spool(BodyMemory(1))
    with pytest.raises(Overloaded):
        await spool.add(PART)
    spool.drop()
