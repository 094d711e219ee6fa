"""Whose a verdict is; that the runbook agrees is in tests/deploy/test_runbook.py."""

import ast
from pathlib import Path

from replicarouter.diagnosis import checks
from replicarouter.diagnosis.owners import OWNERS, owner
from replicarouter.diagnosis.verdict import Side, Verdict

BY_CAUSE = {"load_imbalance"}


def verdict(code: str, side: Side) -> Verdict:
    return Verdict(code, side, "t", ("e",), "c")


def test_what_is_elsewhere_has_an_owner() -> None:
    assert owner(verdict("client_limited", Side.ELSEWHERE)) == "client"
    assert owner(verdict("requests_shed", Side.ELSEWHERE)) == "too few engines"
    assert owner(verdict("load_imbalance", Side.ELSEWHERE)) == "elsewhere"


def test_the_routers_own_and_notes_are_called_so_whatever_their_code() -> None:
    assert owner(verdict("requests_shed", Side.ROUTER)) == "router"
    assert owner(verdict("replica_out", Side.NOTE)) == "note"


def test_every_code_has_one_owner_at_most() -> None:
    assert sum(map(len, OWNERS.values())) == len(frozenset().union(*OWNERS.values()))


def test_every_check_that_finds_something_elsewhere_has_an_owner_and_no_other() -> None:
    codes = set()
    for file in Path(checks.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Verdict":
                code, side = node.args[0], ast.unparse(node.args[1])
                if side not in ("Side.NOTE", "Side.ROUTER"):
                    codes.add(ast.literal_eval(code))
    assert frozenset().union(*OWNERS.values()) == codes - BY_CAUSE
