"""What a request and a streamed event may cost: a file for each minor version of Python, since each has its
own bytecode."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from benchmarks.call_scenarios import PLACES, SUMMED, Count

SLACK = 0.03
"""By this share a count may be above its budget: the libraries have releases."""

LOOSE = 0.10
"""Below the budget by more than this share, the budget is no guard any more."""

NAMED = 8
"""Functions that are named where a count has grown."""

LIBRARIES = ("aiohttp", "uvloop")

WRITE = "python -m benchmarks.call_cost --write-budget"

Instructions = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Allowance:
    """Of one scenario: the totals, and the instructions of each function, by which growth is told."""

    totals: Mapping[str, int]
    functions: Instructions


@dataclass(frozen=True, slots=True)
class Budget:
    """The allowance of each scenario, and with which libraries it was found."""

    scenarios: Mapping[str, Allowance]
    libraries: Mapping[str, str]

    @classmethod
    def of(cls, found: Mapping[str, Count]) -> "Budget":
        """What was found, made a budget."""
        return cls(
            {
                name: Allowance({what: count.total(what) for what in SUMMED}, instructions_of(count))
                for name, count in found.items()
            },
            libraries(),
        )

    @classmethod
    def read(cls) -> "Budget":
        """That of this version of Python; raises FileNotFoundError where there is none."""
        document = json.loads(file_of_budget().read_text())
        scenarios = {
            name: Allowance(one["totals"], _flat(one["functions"]))
            for name, one in document["scenarios"].items()
        }
        return cls(scenarios, document["libraries"])

    def write(self) -> Path:
        """Keep it, a line for each module, in place of what is there; returns the file."""
        lines = [f' "libraries": {json.dumps(self.libraries)}']
        scenarios = []
        for name, one in self.scenarios.items():
            modules = (
                f"   {json.dumps(file)}: {json.dumps(rows)}" for file, rows in _nested(one.functions).items()
            )
            functions = ",\n".join(modules)
            totals = json.dumps(one.totals)
            scenarios.append(f'  "{name}": {{"totals": {totals}, "functions": {{\n{functions}}}}}')
        lines.append(' "scenarios": {\n' + ",\n".join(scenarios) + "}")
        file = file_of_budget()
        file.parent.mkdir(exist_ok=True)
        file.write_text("{\n" + ",\n".join(lines) + "}\n")
        return file


def file_of_budget() -> Path:
    """Where the budget of this version of Python is, if there is one."""
    name = f"python-{sys.version_info.major}.{sys.version_info.minor}.json"
    return Path(__file__).parent / "call_budgets" / name


def libraries() -> dict[str, str]:
    """The versions of those that run with each request."""
    return {name: version(name) for name in LIBRARIES}


def instructions_of(count: Count) -> dict[str, int]:
    """The instructions of each function."""
    return {name: row[PLACES["instructions"]] for name, row in count.rows.items()}


def verdicts(budget: Budget, found: Mapping[str, Count]) -> list[str]:
    """What is above its budget, and what is so far below that the budget should be lower."""
    told = []
    for name, count in found.items():
        allowance = budget.scenarios.get(name)
        if allowance is None:
            told.append(f"{name}: has no budget; set one: {WRITE}")
            continue
        totals = {what: count.total(what) for what in SUMMED}
        grown = [what for what in SUMMED if totals[what] > allowance.totals[what] * (1 + SLACK)]
        fallen = [what for what in SUMMED if totals[what] < allowance.totals[what] * (1 - LOOSE)]
        told += [f"{name}: {_change(what, allowance.totals[what], totals[what])}" for what in grown]
        if grown:
            told += _growth(allowance.functions, instructions_of(count))
        told += [
            f"{name}: {_change(what, allowance.totals[what], totals[what])}: lower it: {WRITE}"
            for what in fallen
        ]
    now = libraries()
    if told and now != budget.libraries:
        told.append(f"the budget was found with {dict(budget.libraries)}, and here are {now}")
    return told


def _change(what: str, budget: int, now: int) -> str:
    return f"{now} {what}, the budget is {budget} ({now / budget - 1:+.1%})"


def _growth(before: Instructions, now: Instructions) -> list[str]:
    """The functions that have more instructions than before, the largest growth first."""
    grown = {name: more for name in now if (more := now[name] - before.get(name, 0)) > 0}
    dearest = sorted(grown, key=lambda name: (-grown[name], name))
    lines = [f"  {grown[name]:+6} instructions  {name}" for name in dearest[:NAMED]]
    if len(dearest) > NAMED:
        lines.append(f"  and {len(dearest) - NAMED} more functions")
    return lines


def _nested(functions: Instructions) -> dict[str, dict[str, int]]:
    nested: dict[str, dict[str, int]] = {}
    for name in sorted(functions):
        file, _, function = name.partition(":")
        nested.setdefault(file, {})[function] = functions[name]
    return nested


def _flat(nested: Mapping[str, Instructions]) -> dict[str, int]:
    return {
        f"{file}:{function}": number for file, rows in nested.items() for function, number in rows.items()
    }
