"""The sentence that says what limited the users."""

from replicarouter.demo.diagnosis import diagnose
from replicarouter.demo.figures import Seen
from replicarouter.demo.ledger import LedgerReading
from tests.demo.conftest import MakeReading


def seen(*readings: LedgerReading) -> Seen:
    all_of_them = Seen()
    for reading in readings:
        all_of_them.note(reading)
    return all_of_them


def test_connector_limit_is_named_with_its_cure(reading: MakeReading) -> None:
    held = reading(connecting=156, streaming=100, limit=100, running=100.0, proxy_limited=True)
    after = reading(connecting=150, streaming=100, limit=100, running=100.0, proxy_limited=True)
    assert diagnose(seen(held, after), users=256) == (
        "The router's connector limit of 100 let only 100 of 256 requests reach the engines while 156 "
        "waited in the router: set --connector-limit 0 or at least 256."
    )


def test_connector_limit_of_a_full_fleet_is_not_to_blame(reading: MakeReading) -> None:
    held = reading(connecting=156, streaming=100, limit=100, running=60.0, waiting=40.0)
    sentence = diagnose(seen(held, held), users=256)
    assert "the fleet itself is full" in sentence
    assert "--connector-limit" not in sentence


def test_nothing_waits_in_the_router(reading: MakeReading) -> None:
    sentence = diagnose(seen(*[reading(sent=3, streaming=253, running=256.0)] * 3), users=256)
    assert sentence == "No request waited in the router: the engines ran up to 256 at once for 256 users."


def test_opening_a_connection_is_no_waiting(reading: MakeReading) -> None:
    opening = reading(connecting=40, streaming=10, running=10.0)
    assert diagnose(seen(opening), users=50).startswith("No request waited in the router: ")


def test_limit_that_is_never_reached_is_not_blamed(reading: MakeReading) -> None:
    free = reading(streaming=50, limit=100, running=50.0)
    assert diagnose(seen(free), users=50).startswith("No request waited in the router: ")


def test_full_engines_are_named(reading: MakeReading) -> None:
    full = reading(streaming=600, running=512.0, waiting=88.0)
    sentence = diagnose(seen(full, full), users=600)
    assert "the engines are full" in sentence
    assert "88" in sentence


def test_requests_between_two_steps_do_not_make_an_engine_full(reading: MakeReading) -> None:
    busy = reading(streaming=256, running=250.0, waiting=6.0)
    assert diagnose(seen(busy, busy), users=256).startswith("No request waited in the router: ")


def test_admission_queue_is_named(reading: MakeReading) -> None:
    queued = reading(queued=20, streaming=44, running=44.0)
    assert diagnose(seen(queued), users=64) == (
        "Up to 20 of 64 requests were queued in the router because no replica had room for them."
    )


def test_silence_is_said(reading: MakeReading) -> None:
    assert diagnose(seen(), users=1) == diagnose(seen(reading()), users=1) == "No request reached the router."
