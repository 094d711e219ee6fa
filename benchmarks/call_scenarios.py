"""What is counted of a router between scripted ends, and how one figure is made of many samples."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.call_stage import Play, counted

PLACES = {"calls": 0, "instructions": 1, "C calls": 2, "within": 3}
"""Where in a row each of them stands."""

SUMMED = ("calls", "instructions", "C calls")
"""Those of which a sum makes sense."""


@dataclass(frozen=True, slots=True)
class Count:
    """What one unit costs. A row of `rows`: calls, instructions, C calls, instructions of all within.
    `alike`: the share of the units that cost just so; the others met the turn of a second, or a table that
    grew."""

    rows: Mapping[str, Sequence[int]]
    turns: Mapping[str, int]
    c_calls: Mapping[str, int]
    alike: float

    def total(self, what: str, package: str = "") -> int:
        """The sum over all functions, or over those of one package."""
        place = PLACES[what]
        chosen = (row for name, row in self.rows.items() if package in ("", package_of(name)))
        return sum(row[place] for row in chosen)


def package_of(name: str) -> str:
    """The package of a function, or the module if it is in none."""
    return name.partition(":")[0].partition("/")[0]


def usual(samples: Sequence[Mapping[str, Any]]) -> Count:
    """The count that came most often."""
    totals = [tuple(sum(row[place] for row in one["rows"].values()) for place in range(3)) for one in samples]
    [(most, times)] = Counter(totals).most_common(1)
    found = samples[totals.index(most)]
    return Count(found["rows"], found["turns"], found["c_calls"], times / len(samples))


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is played, and what is counted of it: all of each request, or one `part` of each stream."""

    play: Play
    what: str
    part: str = ""

    def count(self, samples: Sequence[Mapping[str, Any]]) -> Count:
        """The usual one of this part's samples."""
        if not self.part:
            return usual(samples)
        size = self.play.events + 2
        chosen = {
            "opening": samples[::size],
            "chunk": [one for index, one in enumerate(samples) if index % size not in (0, size - 1)],
            "closing": samples[size - 1 :: size],
        }
        return usual(chosen[self.part])


_SHORT = Play("least-outstanding", requests=100, events=0)
_HASHED = Play("prefix-hash", requests=100, events=0)
_STREAM = Play("least-outstanding", requests=20, events=50)

SCENARIOS = {
    "short": Scenario(_SHORT, "a request of 1 KiB, answered by 1 KiB of JSON; least-outstanding"),
    "short-prefix": Scenario(_HASHED, "the same; prefix-hash"),
    "opening": Scenario(_STREAM, "a request of 1 KiB up to the first event of its stream", "opening"),
    "chunk": Scenario(_STREAM, "one event of a stream", "chunk"),
    "closing": Scenario(_STREAM, "the last event of a stream, and what follows it", "closing"),
}


def measure(names: Sequence[str]) -> dict[str, Count]:
    """The count of each scenario."""
    played: dict[Play, list[dict[str, Any]]] = {}
    found = {}
    for name in names:
        scenario = SCENARIOS[name]
        if scenario.play not in played:
            played[scenario.play] = counted(scenario.play)
        found[name] = scenario.count(played[scenario.play])
    return found
