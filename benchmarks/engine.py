"""How many streamed chunks a second the simulated engine sustains on one core.

The engines run in one process on core 0, this process reads on core 1 and does nothing but count.
A chunk is one SSE event in an HTTP chunk of its own, written by itself. CPU is what the kernel
accounts to the engine process (user and system), divided by the chunks that were read. Foreign is
what other processes took of both cores meanwhile, in cores: with much of it, expect slow figures.

    python benchmarks/engine.py [--repetitions 5] [--seconds 3] [--json results.json]
"""

import argparse
import asyncio
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

import uvloop

ENGINES = 8
STREAMS = 256
TOKENS = 2000
ENGINE_CORE, CLIENT_CORE = 0, 1
WARM_UP = 1.0
TICKS = os.sysconf("SC_CLK_TCK")

BODY = json.dumps(
    {
        "messages": [{"role": "user", "content": "Write until you are told to stop."}],
        "max_tokens": TOKENS,
        "ignore_eos": True,
        "stream": True,
    }
).encode()
REQUEST = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: engine\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\n\r\n%b"
) % (len(BODY), BODY)


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to run the engines."""

    name: str
    speed: str


SETTINGS = (
    Setting("as fast as it can (--speed 0)", "0"),
    Setting("paced at 2 x the H200 profile (--speed 2)", "2"),
)


@dataclass(slots=True)
class Count:
    """What the client has read since it was last reset."""

    events: int = 0
    reads: int = 0
    octets: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """One window of measurement."""

    chunks_per_second: float
    engine_us_per_chunk: float
    engine_user_share: float
    engine_core_used: float
    client_core_used: float
    foreign_cores: float
    events_per_read: float
    bytes_per_chunk: float

    @property
    def capacity(self) -> float:
        """Chunks a second that one core's time is worth, from CPU per chunk."""
        return 1e6 / self.engine_us_per_chunk


class Reader(asyncio.Protocol):
    """One stream after another on one connection; counts the events."""

    def __init__(self, count: Count) -> None:
        self._count = count
        self._split = False
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(REQUEST)

    def data_received(self, data: bytes) -> None:
        count = self._count
        count.reads += 1
        count.octets += len(data)
        count.events += data.count(b"\n\n") + (self._split and data[0] == 10)
        self._split = data[-1] == 10 and data[-2:] != b"\n\n"
        if data.endswith(b"\r\n0\r\n\r\n"):
            self._transport.write(REQUEST)


@contextmanager
def engines(speed: str) -> Iterator[tuple[int, list[int]]]:
    """Start the engine process; its process id and its ports."""
    command = [
        *("taskset", "-c", str(ENGINE_CORE), sys.executable, "-m", "replicarouter", "engine"),
        *("--port", "0", "--count", str(ENGINES), "--speed", speed),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        ports = [int(process.stdout.readline().rpartition(":")[2]) for _ in range(ENGINES)]
        yield process.pid, ports
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(10)


def cpu_seconds(pid: int) -> tuple[float, float]:
    """User and system time of a process with all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) / TICKS, int(fields[12]) / TICKS


def busy_seconds() -> float:
    """CPU time that the two cores have spent on anything but idling and waiting."""
    busy = 0
    for line in Path("/proc/stat").read_text().splitlines():
        name, *times = line.split()
        if name in {f"cpu{ENGINE_CORE}", f"cpu{CLIENT_CORE}"}:
            user, nice, system, _idle, _iowait, irq, softirq = map(int, times[:7])
            busy += user + nice + system + irq + softirq
    return busy / TICKS


async def measure(pid: int, ports: list[int], seconds: float) -> Result:
    """Open all streams, let them settle, count for a while."""
    loop = asyncio.get_running_loop()
    count = Count()
    transports = [
        (await loop.create_connection(lambda: Reader(count), "127.0.0.1", port))[0]
        for port in ports * (STREAMS // ENGINES)
    ]
    await asyncio.sleep(WARM_UP)
    before, own_before, began = cpu_seconds(pid), time.process_time(), time.perf_counter()
    busy_before = busy_seconds()
    events, reads, octets = count.events, count.reads, count.octets
    await asyncio.sleep(seconds)
    after, own_after, ended = cpu_seconds(pid), time.process_time(), time.perf_counter()
    busy = busy_seconds() - busy_before
    events, reads, octets = count.events - events, count.reads - reads, count.octets - octets
    for transport in transports:
        transport.abort()
    user, system = after[0] - before[0], after[1] - before[1]
    elapsed, own = ended - began, own_after - own_before
    return Result(
        chunks_per_second=events / elapsed,
        engine_us_per_chunk=(user + system) / events * 1e6,
        engine_user_share=user / (user + system),
        engine_core_used=(user + system) / elapsed,
        client_core_used=own / elapsed,
        foreign_cores=max(0.0, busy - user - system - own) / elapsed,
        events_per_read=events / reads,
        bytes_per_chunk=octets / events,
    )


def run(setting: Setting, seconds: float) -> Result:
    """One repetition with a fresh engine process."""
    with (
        engines(setting.speed) as (pid, ports),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        return runner.run(measure(pid, ports, seconds))


def describe(setting: Setting, results: list[Result]) -> str:
    """The line of a setting: medians, with the range of the two that matter."""

    def spread(values: list[float], digits: int) -> str:
        middle = statistics.median(values)
        return f"{middle:,.{digits}f} ({min(values):,.{digits}f}-{max(values):,.{digits}f})"

    def median(values: list[float]) -> float:
        return statistics.median(values)

    cells = (
        setting.name,
        spread([r.chunks_per_second for r in results], 0),
        spread([r.engine_us_per_chunk for r in results], 2),
        f"{median([r.capacity for r in results]):,.0f}",
        f"{median([r.engine_core_used for r in results]):.2f}",
        f"{median([r.client_core_used for r in results]):.2f}",
        f"{median([r.foreign_cores for r in results]):.2f}",
        f"{median([r.events_per_read for r in results]):.2f}",
    )
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Measure every setting and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one window")
    parser.add_argument("--json", type=Path, help="also write all results there")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {CLIENT_CORE})
    results: dict[str, list[Result]] = {setting.name: [] for setting in SETTINGS}
    for _ in range(arguments.repetitions):
        for setting in SETTINGS:
            results[setting.name].append(run(setting, arguments.seconds))
    print(
        f"{ENGINES} engines in one process, {STREAMS} streams; Python {platform.python_version()};"
        f" {arguments.repetitions} repetitions, median (range)\n\n"
        "| setting | chunks/s read | engine CPU us/chunk | chunks/s a core is worth (from CPU)"
        " | engine core used | client core used | foreign cores | events a read |\n"
        "|---|---|---|---|---|---|---|---|"
    )
    for setting in SETTINGS:
        print(describe(setting, results[setting.name]))
    if arguments.json:
        document = {name: [asdict(one) for one in many] for name, many in results.items()}
        arguments.json.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
