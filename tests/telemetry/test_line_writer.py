"""A thread that writes lines, whatever their reader does."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from replicarouter.telemetry.line_writer import RETRY, ROOM, LineWriter


class Pipe:
    """A pipe with a writer of lines at its end; nobody reads it unless told to."""

    def __init__(self) -> None:
        reader, self.descriptor = os.pipe()
        self.reader = os.fdopen(reader, "rb")
        self.writers: list[LineWriter] = []

    def writer(self, room: int = ROOM) -> LineWriter:
        self.writers.append(LineWriter(self.descriptor, room=room))
        return self.writers[-1]

    def fill(self) -> int:
        """Leave no room in it; how many lines that took."""
        os.set_blocking(self.descriptor, False)
        lines = 0
        try:
            while True:
                lines += os.write(self.descriptor, b"\n" * 4096)
        except BlockingIOError:
            os.set_blocking(self.descriptor, True)
            return lines

    def read(self, count: int) -> list[bytes]:
        return [self.reader.readline() for _ in range(count)]

    def close(self) -> None:
        """Whoever still writes is told that nobody reads, before the descriptor is another's."""
        self.reader.close()
        for writer in self.writers:
            writer.flush(5.0)
        os.close(self.descriptor)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.close()


def test_lines_arrive_in_order_and_by_themselves(pipe: Pipe) -> None:
    writer = pipe.writer()
    lines = [b"line %d\n" % number for number in range(1000)]
    for line in lines:
        assert writer.put(line, spare=False)
    assert pipe.read(1000) == lines
    assert writer.flush(5.0)
    assert writer.dropped == 0


def test_all_is_written_once_it_is_flushed(pipe: Pipe) -> None:
    writer = pipe.writer()
    for round_ in range(20):
        line = b"round %d\n" % round_
        writer.put(line, spare=False)
        assert writer.flush(5.0)
        assert pipe.read(1) == [line]


def test_a_stuck_reader_holds_up_nobody_and_the_rest_comes_later(pipe: Pipe) -> None:
    filled = pipe.fill()
    writer = pipe.writer(room=10_000)
    line = b"x" * 999 + b"\n"
    began = time.monotonic()
    assert [writer.put(line, spare=True) for _ in range(500)].count(True) == 10
    assert time.monotonic() - began < 1.0
    assert writer.dropped == 490
    assert not writer.flush(0.05)
    assert not writer.relaxed
    pipe.read(filled)
    assert pipe.read(10) == [line] * 10
    assert writer.flush(5.0)
    assert writer.relaxed


def test_what_must_not_be_lost_has_room_of_its_own_but_not_without_end(pipe: Pipe) -> None:
    pipe.fill()
    writer = pipe.writer(room=100_000)
    line = b"x" * 1000
    assert [writer.put(line, spare=True) for _ in range(150)].count(True) == 100
    assert [writer.put(line, spare=False) for _ in range(150)].count(True) == 100
    assert writer.waiting == 200_000


def test_a_reader_that_has_gone_is_no_error(pipe: Pipe) -> None:
    writer = pipe.writer()
    pipe.reader.close()
    writer.put(b"lost\n", spare=False)
    writer.flush(5.0)
    assert not writer.put(b"dropped\n", spare=False)
    assert writer.dropped == 2
    assert not writer.relaxed


def test_a_descriptor_that_does_not_block_is_waited_for(pipe: Pipe) -> None:
    os.set_blocking(pipe.descriptor, False)
    writer = pipe.writer()
    line = b"y" * 99_999 + b"\n"
    for _ in range(5):
        writer.put(line, spare=False)
    assert pipe.read(5) == [line] * 5


def test_a_full_disk_costs_the_lines_of_its_time_and_no_others(tmp_path: Path) -> None:
    path = tmp_path / "log"
    descriptor, room_again = os.open("/dev/full", os.O_WRONLY), os.open(path, os.O_WRONLY | os.O_CREAT)
    writer = LineWriter(descriptor)
    for line in (b"lost\n", b"lost too\n"):
        writer.put(line, spare=False)
        assert writer.flush(5.0)
    assert (writer.dropped, writer.untold, writer.waiting) == (2, 2, 0)
    writer.put(b"2 lost\n", spare=False, tells=2)
    assert writer.flush(5.0)
    assert (writer.dropped, writer.untold) == (2, 2)

    os.dup2(room_again, descriptor)
    writer.put(b"2 lost\n", spare=False, tells=2)
    writer.put(b"goes on\n", spare=False)
    assert writer.flush(5.0)
    assert path.read_bytes() == b"2 lost\ngoes on\n"
    assert (writer.dropped, writer.untold) == (2, 0)


def test_it_goes_on_by_itself_after_a_pause(tmp_path: Path) -> None:
    path = tmp_path / "log"
    descriptor, room_again = os.open("/dev/full", os.O_WRONLY), os.open(path, os.O_WRONLY | os.O_CREAT)
    writer = LineWriter(descriptor)
    writer.put(b"lost\n", spare=False)
    end = time.monotonic() + 5.0
    while not writer.dropped:
        assert time.monotonic() < end
    failed = time.monotonic()
    for _ in range(1000):
        writer.put(b"waits\n", spare=False)
    os.dup2(room_again, descriptor)
    while writer.waiting:
        assert time.monotonic() < end
    assert time.monotonic() - failed > RETRY / 2
    assert path.read_bytes() == b"waits\n" * 1000
    assert writer.dropped == 1


CUT = """
import os, resource, sys
from replicarouter.telemetry.line_writer import LineWriter

writer = LineWriter(os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY | os.O_APPEND))
writer._hurry.wait = lambda seconds: None
for number, room in enumerate((0, 5, 8, 8, 8)):
    size = os.path.getsize(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + room, resource.RLIM_INFINITY))
    writer.put(b"line %d\\n" % number, spare=False)
    writer.flush(5.0)
print(writer.dropped)
"""


def test_a_line_that_was_cut_is_not_glued_to_the_next(tmp_path: Path) -> None:
    path = tmp_path / "log"
    output = subprocess.check_output([sys.executable, "-c", CUT, str(path)], text=True)
    assert path.read_text() == "line \nline 2\nline 3\nline 4\n"
    assert output == "2\n"


CUT_IN_A_ROW = """
import os, resource, sys
from replicarouter.telemetry.line_writer import LineWriter

writer = LineWriter(os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY | os.O_APPEND))
writer._hurry.wait = lambda seconds: None
row = b"".join(b"line %d\\n" % number for number in range(4))
for room in map(int, sys.argv[2:]):
    size = os.path.getsize(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + room, resource.RLIM_INFINITY))
    writer.put(row, spare=False, lines=4)
    writer.flush(5.0)
print(writer.dropped, writer.untold)
"""


@pytest.mark.parametrize(
    ("rooms", "written", "dropped"),
    [
        ([0, 28], "line 0\nline 1\nline 2\nline 3\n", 4),
        ([14, 28], "line 0\nline 1\nline 0\nline 1\nline 2\nline 3\n", 2),
        ([16, 29], "line 0\nline 1\nli\nline 0\nline 1\nline 2\nline 3\n", 2),
        ([27, 6, 28], "line 0\nline 1\nline 2\nline 3\nline \nline 0\nline 1\nline 2\nline 3", 1 + 4 + 1),
    ],
)
def test_of_lines_in_a_row_those_are_counted_that_were_not_written_whole(
    tmp_path: Path, rooms: list[int], written: str, dropped: int
) -> None:
    path = tmp_path / "log"
    command = [sys.executable, "-c", CUT_IN_A_ROW, str(path), *map(str, rooms)]
    output = subprocess.check_output(command, text=True)
    assert path.read_text() == written
    assert output == f"{dropped} {dropped}\n"


def test_lines_in_a_row_are_dropped_in_a_row(pipe: Pipe) -> None:
    pipe.fill()
    writer = pipe.writer(room=100_000)
    row = (b"x" * 999 + b"\n") * 30
    assert [writer.put(row, spare=True, lines=30) for _ in range(5)].count(True) == 3
    assert writer.dropped == 60
    assert writer.put(row[:1000], spare=True)


def test_the_thread_keeps_no_process_alive() -> None:
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "log writer")
