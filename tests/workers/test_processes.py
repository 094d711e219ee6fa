"""What the operating system says of several processes, as if they were one."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from replicarouter.workers.processes import BORN, CPU, Processes

RSS = "replicarouter_process_resident_memory_bytes"


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has used some time and memory, and waits."""
    code = "x = bytearray(30_000_000)\nfor _ in range(2_000_000): pass\nprint('ready', flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def values(processes: Processes) -> dict[str, float]:
    return {metric.name: metric.samples[0].value for metric in processes.collect()}


def test_one_process_is_what_the_library_says_of_it() -> None:
    told = values(Processes(lambda: [os.getpid()]))
    assert told[RSS] > 10_000_000
    assert set(told) >= {CPU, BORN, RSS, "replicarouter_process_open_fds", "replicarouter_process_max_fds"}


def test_several_are_added_up(other: subprocess.Popen[bytes]) -> None:
    own, alone = values(Processes(lambda: [os.getpid()])), values(Processes(lambda: [other.pid]))
    both = values(Processes(lambda: [os.getpid(), other.pid]))
    assert alone[RSS] > 30_000_000
    assert both[RSS] >= 0.9 * (own[RSS] + alone[RSS])
    assert both[BORN] == min(own[BORN], alone[BORN])
    assert both[CPU] >= own[CPU] + alone[CPU] - 0.01


def test_the_time_of_one_that_has_ended_stays(other: subprocess.Popen[bytes]) -> None:
    living = [os.getpid(), other.pid]
    processes = Processes(lambda: living)
    before = values(processes)[CPU]
    other.kill()
    other.wait()
    assert values(processes)[CPU] >= before
    living.remove(other.pid)
    assert values(processes)[CPU] >= before
    assert processes.cpu() >= before
