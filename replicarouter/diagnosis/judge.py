"""All checks on one window, in the order of their importance."""

from collections.abc import Iterable

from replicarouter.diagnosis.case import Case
from replicarouter.diagnosis.checks import CHECKS
from replicarouter.diagnosis.verdict import Expectations, Side, Verdict
from replicarouter.diagnosis.window import Window

HEALTHY, LIMITED_BY_ROUTER, LIMITED_ELSEWHERE = 0, 3, 4


NOTHING_EXPECTED = Expectations()


def diagnose(window: Window, expected: Expectations = NOTHING_EXPECTED) -> list[Verdict]:
    """What limits, most important first; nothing for a healthy fleet.

    A window of one snapshot tells no rates: it is judged by gauges alone.
    """
    case = Case(window, expected)
    found = [verdict for check in CHECKS for verdict in check(case)]
    return sorted(found, key=lambda verdict: verdict.side is Side.NOTE)


def exit_status(verdicts: Iterable[Verdict]) -> int:
    """The exit status of `replicarouter diagnose`: 3 when the router or its settings limit, 4 when something
    else does, else 0."""
    sides = {verdict.side for verdict in verdicts}
    if Side.ROUTER in sides:
        return LIMITED_BY_ROUTER
    return LIMITED_ELSEWHERE if Side.ELSEWHERE in sides else HEALTHY
