"""Why an answer is no good."""

from replicarouter.acceptance.errors import CheckError, NoAnswer, Refused, Unreadable


def test_a_refusal_tells_place_status_and_reason() -> None:
    refusal = Refused("one", 429, "")
    assert str(refusal) == "one answers 429: without a reason"
    assert (refusal.status, refusal.message) == (429, "")


def test_all_are_what_a_check_catches() -> None:
    assert all(issubclass(kind, CheckError) for kind in (NoAnswer, Refused, Unreadable))
