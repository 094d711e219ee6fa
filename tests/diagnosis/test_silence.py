"""A router that does not answer those who look at it."""

import pytest

from replicarouter.diagnosis.silence import Attendance, router_silent
from replicarouter.diagnosis.verdict import Side


@pytest.mark.parametrize(("looks", "missed"), [(11, 0), (11, 1), (10, 5)])
def test_a_router_that_answers_again_is_not_silent(looks: int, missed: int) -> None:
    assert router_silent(Attendance(looks=looks, missed=missed, why="timed out")) is None


def test_a_router_that_did_not_answer_in_the_end_is_silent() -> None:
    found = router_silent(Attendance(looks=7, missed=2, why="timed out", ago=3.21))
    assert found is not None
    assert (found.code, found.side, found.title) == (
        "router_silent",
        Side.ROUTER,
        "The router does not answer",
    )
    assert found.evidence == ("no answer at 2 of 7 looks (timed out)", "the last answer came 3.2 s ago")


def test_a_router_that_seldom_answers_is_silent_too() -> None:
    found = router_silent(Attendance(looks=10, missed=6, why="Connection refused"))
    assert found is not None
    assert found.title == "The router does not answer most of the time"
    assert found.evidence == ("no answer at 6 of 10 looks (Connection refused)",)
