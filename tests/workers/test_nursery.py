"""A process that starts others and sees them end."""

import os
import select
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from replicarouter.workers.nursery import STARTED, Ended, Nursery

WAITS = 10.0


def act(seat: int, end: socket.socket) -> int:
    """Say who one is and do as one is told: leave with a number, or stay until the other side has gone."""
    end.sendall(f"{seat} {os.getpid()} {os.getppid()}\n".encode())
    order = end.recv(100)
    return int(order) if order else 0


class Scene:
    """A nursery, and what has been heard of it."""

    def __init__(self) -> None:
        self.nursery = Nursery.open(act)
        self.over = False
        self.news: list[Ended] = []
        self.ends: list[socket.socket] = []

    def start(self, seat: int) -> tuple[socket.socket, int]:
        """The worker's socket and its process id, as it says itself."""
        ours, theirs = socket.socketpair()
        ours.settimeout(WAITS)
        self.ends.append(ours)
        self.nursery.start(seat, theirs)
        with ours.makefile() as lines:
            said = lines.readline().split()
        assert said[0] == str(seat)
        assert said[2] == str(self.nursery.pid)
        assert self.heard() == Ended(seat, int(said[1]), STARTED)
        return ours, int(said[1])

    def heard(self) -> Ended | None:
        """The next news; None when the nursery has ended."""
        if not self.news:
            readable, _, _ = select.select([self.nursery], [], [], WAITS)
            assert readable, "no news"
            news = self.nursery.hear()
            if news is None:
                return None
            self.news += news
        return self.news.pop(0)

    def close(self) -> None:
        if not self.over:
            self.over = True
            self.nursery.close()


@pytest.fixture
def scene() -> Iterator[Scene]:
    with ExitStack() as stack:
        scene = Scene()
        stack.callback(scene.close)
        yield scene
        for end in scene.ends:
            end.close()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_how_a_worker_left_is_told(scene: Scene) -> None:
    end, pid = scene.start(3)
    end.sendall(b"7")
    assert scene.heard() == Ended(3, pid, 7)


def test_how_a_worker_was_killed_is_told(scene: Scene) -> None:
    _end, pid = scene.start(0)
    os.kill(pid, signal.SIGKILL)
    assert scene.heard() == Ended(0, pid, -signal.SIGKILL)


def test_a_seat_can_be_taken_again(scene: Scene) -> None:
    for _ in range(3):
        end, pid = scene.start(1)
        end.sendall(b"0")
        assert scene.heard() == Ended(1, pid, 0)


def test_the_end_of_the_nursery_is_heard(scene: Scene) -> None:
    end, _ = scene.start(0)
    os.kill(scene.nursery.pid, signal.SIGKILL)
    assert scene.heard() is None
    end.close()  # That is how its worker knows.


def test_workers_that_are_left_are_killed_in_the_end(scene: Scene) -> None:
    end, pid = scene.start(0)
    scene.close()
    assert end.recv(1) == b""
    assert not alive(pid)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_for_all_processes_are_the_keepers_matter(scene: Scene, number: signal.Signals) -> None:
    end, pid = scene.start(0)
    os.kill(pid, number)
    os.kill(scene.nursery.pid, number)
    end.sendall(b"5")
    assert scene.heard() == Ended(0, pid, 5)


def test_nothing_is_heard_while_nothing_happens(scene: Scene) -> None:
    assert scene.nursery.hear() == []
