import pytest

from replicarouter.simulator import records
from replicarouter.simulator.records import Records, name_of


def test_events_are_counted_by_name_and_in_all() -> None:
    found = Records()
    for event in ("received", "started", "finished", "received", "refused"):
        found.note("one", event)
    found.note("two", "received")
    shown = found.as_json()
    assert shown["requests"]["one"] == {"received": 2, "started": 1, "finished": 1, "refused": 1}
    assert shown["requests"]["two"] == {"received": 1}
    assert (shown["received"], shown["started"], shown["aborted"], shown["dropped"]) == (3, 1, 0, 0)


def test_names_are_bounded_and_totals_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MOST", 3)
    found = Records()
    for number in range(5):
        found.note(str(number), "received")
    assert list(found.as_json()["requests"]) == ["2", "3", "4"]
    assert found.totals["received"] == 5


def test_a_request_without_a_name_is_counted_in_all_alone() -> None:
    found = Records()
    found.note("", "received")
    assert found.as_json()["requests"] == {}
    assert found.totals["received"] == 1


def test_whoever_keeps_a_journal_hears_of_each_event() -> None:
    heard: list[tuple[str, str]] = []
    found = Records(lambda name, event: heard.append((name, event)))
    found.note("one", "received")
    found.note("", "received")
    assert heard == [("one", "received"), ("", "received")]


def test_the_nonce_is_the_name_before_the_request_id() -> None:
    assert name_of({"x-soak-nonce": "n", "x-request-id": "r"}) == "n"
    assert name_of({"x-request-id": "r"}) == "r"
    assert name_of({}) == ""
