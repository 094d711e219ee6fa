from collections import Counter
from typing import Any

import pytest

from replicarouter.simulator.active_faults import ActiveFaults
from replicarouter.simulator.faults import Fault


def active(*faults: Fault) -> ActiveFaults:
    found = ActiveFaults()
    for fault in faults:
        found.add(fault, None)
    return found


def test_without_a_fault_nothing_strikes() -> None:
    assert not active()
    assert active().strike("POST") is None


@pytest.mark.parametrize(
    ("on", "methods"),
    [("generations", {"POST"}), ("probes", {"GET", "HEAD"}), ("all", {"POST", "GET", "HEAD"})],
)
def test_fault_strikes_the_requests_it_is_meant_for(on: str, methods: set[str]) -> None:
    faults = active(Fault(kind="hang", on=on))
    assert {method for method in ("POST", "GET", "HEAD") if faults.strike(method)} == methods


def test_fault_is_over_when_it_has_struck_as_often_as_it_should() -> None:
    faults = active(Fault(kind="hang", count=2))
    assert [bool(faults.strike("POST")) for _ in range(4)] == [True, True, False, False]
    assert not faults
    assert faults.hits == Counter(hang=2)


def drawn(**options: Any) -> list[bool]:
    faults = active(Fault(kind="hang", **options))
    return [bool(faults.strike("POST")) for _ in range(400)]


def test_share_is_drawn_from_the_seed() -> None:
    assert drawn(share=0.25, seed=1) == drawn(share=0.25, seed=1)
    assert drawn(share=0.25, seed=1) != drawn(share=0.25, seed=2)
    assert 60 < sum(drawn(share=0.25)) < 140
    assert not any(drawn(share=0))


def test_a_share_without_luck_uses_up_no_count() -> None:
    assert sum(drawn(share=0.25, count=5)) == 5


def test_the_first_of_several_faults_that_strikes_is_the_one() -> None:
    faults = active(Fault(kind="slow"), Fault(kind="hang", count=1), Fault(kind="reset"))
    struck = [fault.kind for _ in range(2) if (fault := faults.strike("POST"))]
    assert struck == ["hang", "reset"], "slow is of the whole engine"


def test_a_fault_is_removed_once_and_only_itself() -> None:
    faults = ActiveFaults()
    first = faults.add(Fault(kind="hang"), None)
    assert faults.remove(first)
    second = faults.add(Fault(kind="hang"), None)
    assert not faults.remove(first)
    assert faults.get("hang") is second


def test_shown_are_what_is_active_and_every_hit() -> None:
    faults = ActiveFaults()
    faults.add(Fault(kind="slow", factor=2, seconds=5), 15.0)
    faults.add(Fault(kind="reset", at=3, count=1), None)
    faults.strike("POST")
    slow = {"kind": "slow", "factor": 2, "seconds": 5, "hits": 0, "seconds_left": 2.5}
    assert faults.as_json(12.5) == {"faults": [slow], "hits": {"reset": 1}}
