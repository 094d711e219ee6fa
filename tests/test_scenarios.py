"""The table of scenarios is whole, and names only tests that exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
LATER = {*range(81, 84)}
"""Scenarios of features that are not there yet."""

ROW = re.compile(r"\| H([0-9]{2}) \| [^|]+ \| ([^|]+) \|")
NAMED = re.compile(r"`([a-z_/]+)::([a-z0-9_]+)`")

ROWS = {
    int(found[1]): found[2]
    for line in (TESTS / "README.md").read_text(encoding="utf-8").splitlines()
    if (found := ROW.fullmatch(line))
}


@cache
def functions(module: str) -> frozenset[str]:
    """Names of the tests of a module, which is named as the table does."""
    room, _, name = module.rpartition("/")
    tree = ast.parse((TESTS / (room or "journeys") / f"test_{name}.py").read_text(encoding="utf-8"))
    return frozenset(
        node.name.removeprefix("test_")
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    )


def test_every_scenario_has_its_row() -> None:
    assert list(ROWS) == list(range(1, 84))


@pytest.mark.parametrize("number", ROWS)
def test_the_tests_of_a_scenario_exist(number: int) -> None:
    named = NAMED.findall(ROWS[number])
    if number in LATER:
        assert not named
        assert ROWS[number].startswith("– with ")
        return
    assert named
    assert ROWS[number] == ", ".join(f"`{module}::{test}`" for module, test in named)
    for module, test in named:
        assert test in functions(module), f"{module} has no test_{test}"
