"""The document of the status page: what is in it, and how often the metrics are judged."""

import orjson

from replicarouter.admin.picture import ERRORS, JUDGED_EVERY, Picture
from replicarouter.exchange import CLIENT_GONE, Stage
from replicarouter.fleet.ledger import OUTSTANDING
from replicarouter.telemetry.recent import RecentErrors
from tests.scene import an_exchange, named
from tests.telemetry.conftest import Watched


def a_picture(watched: Watched, recent: RecentErrors | None = None, *, draining: bool = False) -> Picture:
    picture = Picture(
        watched.sources,
        recent or RecentErrors(),
        draining=lambda: draining,
        cpu=lambda: 1.0,
        wall=lambda: 1_700_000_000.0,
    )
    picture.begin()
    return picture


def test_the_counts_are_the_ledgers(watched: Watched) -> None:
    ledger = watched.fleet.ledger
    ledger.receiving = 3
    ledger.queued["m1"] = 4
    row = named(watched.fleet, "a").row
    ledger.cells[row + Stage.SENT], ledger.cells[row + OUTSTANDING] = 2, 2
    document = orjson.loads(a_picture(watched).draw())
    assert document["ledger"]["accepted"] == 3 + 4 + 2
    assert document["queued"] == {"m1": 4}
    assert [row["sent"] for row in document["replicas"]] == [2, 0]
    assert document["at"] == 1_700_000_000.0


def test_a_document_is_one_line(watched: Watched) -> None:
    recent = RecentErrors()
    recent.observe(an_exchange(outcome="bad", client_id="two\nlines", ended_at=1000.0))
    assert b"\n" not in a_picture(watched, recent).draw()


def test_the_state_of_the_router_is_told(watched: Watched) -> None:
    router = orjson.loads(a_picture(watched, draining=True).draw())["router"]
    assert (router["version"], router["draining"], router["ready"], router["lag"]) == (
        "9.9",
        True,
        True,
        0.25,
    )


def test_the_metrics_are_judged_every_other_second(watched: Watched) -> None:
    picture = a_picture(watched)
    ledger = watched.fleet.ledger
    ledger.hold(an_exchange(), watched.clock())
    before = orjson.loads(picture.draw())["verdicts"]
    read = watched.clock()
    watched.clock.move(JUDGED_EVERY / 2)
    assert orjson.loads(picture.draw())["verdicts"] == before
    assert picture.judged_at == read
    watched.clock.move(JUDGED_EVERY / 2)
    picture.draw()
    assert picture.judged_at == watched.clock()


def test_who_begins_to_look_sees_nothing_of_long_ago(watched: Watched) -> None:
    picture = a_picture(watched)
    watched.fleet.ledger.finished.add(("/v1/chat/completions", "m1", "a", "ok"), 1000)
    watched.clock.move(3600.0)
    picture.begin()
    watched.clock.move(1.0)
    assert orjson.loads(picture.draw())["ended_rate"]["ok"] == 0.0


def test_recent_errors_are_bounded(watched: Watched) -> None:
    recent = RecentErrors()
    for second in range(2 * ERRORS):
        recent.observe(an_exchange(outcome="bad", ended_at=1000.0 + second))
    document = orjson.loads(a_picture(watched, recent).draw())
    assert len(document["errors"]) == ERRORS


def test_clients_that_leave_take_no_room_from_errors(watched: Watched) -> None:
    recent = RecentErrors()
    recent.observe(an_exchange(outcome="bad", ended_at=999.0))
    for second in range(100):
        recent.observe(an_exchange(outcome=CLIENT_GONE, stage=Stage.STREAMING, ended_at=1000.0 + second))
    document = orjson.loads(a_picture(watched, recent).draw())
    assert [error["outcome"] for error in document["errors"]] == ["bad@receiving"]
    assert document["departed"]["count"] == 100
    assert document["departed"]["last"]["stage"] == "streaming"
