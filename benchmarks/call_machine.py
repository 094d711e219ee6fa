"""Machine instructions for each request and each event, those of C code too, counted by Valgrind.

Two runs differ by one or two percent: sockets are looked at a little sooner or later. That is enough to see
what a change is worth, and too much for a budget.
"""

import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.call_router import CUT
from benchmarks.call_stage import Failed, Play, Stage, stage

REQUESTS = 200
"""In one measurement."""

EVENTS = (200, 1200)
"""Of the streams whose difference tells what an event costs."""

ROUNDS = 5

_NAMING = re.compile(r"c?(ob|fn|fl|fi|fe)=\((\d+)\)(?: (.*))?")

Costs = Mapping[str, float]
"""Instructions by function, each after the file it was loaded from."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What one unit costs: the totals of the measurements, and the functions of the one in their middle."""

    totals: tuple[float, ...]
    functions: Costs

    @property
    def total(self) -> float:
        """Their median."""
        return median(self.totals)

    def objects(self) -> Costs:
        """The sums by file."""
        sums: dict[str, float] = {}
        for name, number in self.functions.items():
            owner = name.partition(":")[0]
            sums[owner] = sums.get(owner, 0.0) + number
        return sums


class Valgrind:
    """Counts a router that runs below it."""

    def __init__(self, on: Stage, folder: Path) -> None:
        self._router = on.router.pid
        self._folder = folder
        self._number = 0

    def begin(self) -> None:
        """Count from now on."""
        self._control("-i", "on")
        self.counted()

    def counted(self) -> Costs:
        """What was done since the last time."""
        self._control("-d")
        self._number += 1
        dump = self._folder / f"out.{self._number}"
        return costs_of(dump.read_text(errors="replace"))

    def _control(self, *words: str) -> None:
        command = ["callgrind_control", *words, str(self._router)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        if done.returncode:
            raise Failed(f"{' '.join(command)}: {done.stdout}{done.stderr}")


def costs_of(dump: str) -> dict[str, float]:
    """The instructions of each function itself, of a file in Callgrind's format."""
    names: dict[tuple[str, str], str] = {}
    place = {"ob": "", "fn": ""}
    costs: Counter[str] = Counter()
    called = False
    for line in dump.splitlines():
        if line[:1].isdigit() or line[:1] in "+-*":
            # The line after a call has what was spent in there, and that is counted where it was.
            if line and not called:
                costs[f"{Path(place['ob']).name}:{place['fn']}"] += int(line.split()[1])
            called = False
        elif line.startswith("calls="):
            called = True
        elif (found := _NAMING.match(line)) is not None:
            kind, number, name = found.groups()
            if name is not None:
                names[kind, number] = name
            if kind in place and not line.startswith("c"):
                place[kind] = names[kind, number]
    return dict(costs)


@contextmanager
def below_valgrind(play: Play) -> Iterator[tuple[Stage, Valgrind]]:
    """A router that knows its ways, and its counter."""
    if shutil.which("callgrind_control") is None:
        raise Failed("there is no valgrind here; Debian: apt-get install valgrind")
    with tempfile.TemporaryDirectory(prefix="call-cost-") as folder:
        options = ("--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/out")
        # Without random addresses a table of objects is searched in the same order each time.
        with stage(play, report=None, before=("setarch", "-R", "valgrind", *options)) as on:
            on.settle()
            counter = Valgrind(on, Path(folder))
            counter.begin()
            yield on, counter


def of_requests(policy: str) -> Machine:
    """What a short request costs."""
    with below_valgrind(Play(policy, REQUESTS, 0)) as (on, counter):
        rounds = [_round(on, counter, REQUESTS) for _ in range(ROUNDS)]
    return _middle([{name: number / REQUESTS for name, number in one.items()} for one in rounds])


def of_events() -> Machine:
    """What one event of a stream costs: a long stream less a short one, of which the rest is the same."""
    short, long = EVENTS
    rounds = []
    with below_valgrind(Play("least-outstanding", 1, 20)) as (on, counter):
        for _ in range(ROUNDS):
            less, more = (_round(on, counter, 1, events) for events in EVENTS)
            names = less.keys() | more.keys()
            rounds.append({name: (more.get(name, 0) - less.get(name, 0)) / (long - short) for name in names})
    return _middle(rounds)


def _round(on: Stage, counter: Valgrind, requests: int, events: int | None = None) -> Costs:
    on.perform(requests, events=events)
    on.ends.tell(CUT)
    return counter.counted()


def _middle(rounds: Sequence[Costs]) -> Machine:
    ordered = sorted(rounds, key=lambda one: sum(one.values()))
    return Machine(tuple(sum(one.values()) for one in ordered), ordered[len(ordered) // 2])


MEASUREMENTS: Mapping[str, Callable[[], Machine]] = {
    "short": partial(of_requests, "least-outstanding"),
    "short-prefix": partial(of_requests, "prefix-hash"),
    "chunk": of_events,
}
"""By scenario."""


def lines_of(name: str, machine: Machine, top: int) -> list[str]:
    """What to print of one."""
    found = f"{machine.totals[0]:,.0f} to {machine.totals[-1]:,.0f}"
    lines = [f"{name}: {machine.total:,.0f} machine instructions ({found} in {ROUNDS} rounds)"]
    for costs in (machine.objects(), machine.functions):
        dearest = sorted(costs.items(), key=lambda item: -item[1])[: top or None]
        lines += [f"{number:>12,.0f}  {owner}" for owner, number in dearest if number >= 1]
        lines.append("")
    return lines
