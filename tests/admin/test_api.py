"""The operator's door over a real port: what it shows, and what it lets an operator do."""

import asyncio
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest

from replicarouter.admin.api import LISTED
from replicarouter.admission.decisions import MOST_OF_ONE, Case, Draft
from replicarouter.errors import RouterError
from replicarouter.exchange import CLIENT_GONE
from replicarouter.fleet.ledger import OUTSTANDING
from replicarouter.fleet.lifecycle import Duty
from replicarouter.fleet.registry import Fleet
from replicarouter.policies.base import View
from replicarouter.policies.random_choice import RandomChoice
from tests.admin.conftest import OWN_PORT, PER_SECOND, Open
from tests.fakes.client import Client, request
from tests.scene import a_request, an_exchange, named


def have(fleet: Fleet, name: str, outstanding: int) -> None:
    """Let a replica have so many requests."""
    fleet.ledger.cells[named(fleet, name).row + OUTSTANDING] = outstanding


async def test_the_ledger_is_shown(open_door: Open) -> None:
    door = await open_door()
    door.watched.fleet.ledger.receiving = 3
    document = (await door.ask("/admin/ledger")).json()

    assert document["receiving"] == document["accepted"] == 3
    assert [row["name"] for row in document["replicas"]] == ["a", "b"]


async def test_replicas_are_shown(open_door: Open) -> None:
    document = (await (await open_door()).ask("/admin/replicas")).json()
    assert [row["state"] for row in document["replicas"]] == ["ready", "ready"]


async def test_requests_in_flight_are_shown_oldest_first(open_door: Open) -> None:
    door = await open_door()
    for name in "ba":
        door.watched.fleet.ledger.in_flight[name] = an_exchange(client_id=name, upstream_id=name)
    document = (await door.ask("/admin/requests")).json()

    assert [row["id"] for row in document["requests"]] == ["b", "a"]


@pytest.mark.parametrize("path", ["/health", "/ready", "/version", "/metrics"])
async def test_the_routers_own_answers_are_here_too(open_door: Open, path: str) -> None:
    assert (await (await open_door()).ask(path)).status == 200


async def test_an_unknown_path_is_404(open_door: Open) -> None:
    (await (await open_door()).ask("/admin/nothing")).refused(404, "unknown_path")


async def test_recent_errors_and_departures_are_shown_apart_with_the_time_of_day(open_door: Open) -> None:
    door = await open_door()
    door.recent.observe(an_exchange(outcome="connect_failed", client_id="req-7", ended_at=990.0))
    for second in range(200):
        door.recent.observe(an_exchange(outcome=CLIENT_GONE, client_id="left", ended_at=991.0 + second / 100))
    document = (await door.ask("/admin/errors")).json()
    (row,) = document["errors"]
    assert (row["request_id"], row["outcome"]) == ("req-7", "connect_failed@receiving")
    departures = document["departures"]
    assert {(left["request_id"], left["outcome"]) for left in departures} == {
        ("left", "client_gone@receiving")
    }
    for ended in (row, departures[0]):
        ago = datetime.now(UTC) - datetime.fromisoformat(ended["at"])
        assert ended["age"] <= ago.total_seconds() <= ended["age"] + 5.0


async def test_another_method_is_405(open_door: Open) -> None:
    answer = await (await open_door()).ask("/admin/ledger", "DELETE")
    answer.refused(405, "method_not_allowed")
    assert answer.head.get("allow")


async def test_a_reading_that_fails_is_an_error_of_ours_and_is_logged(
    open_door: Open, caplog: pytest.LogCaptureFixture
) -> None:
    door = await open_door()
    door.watched.fleet.replicas.append(None)  # type: ignore[arg-type]
    (await door.ask("/admin/ledger")).refused(500, "internal_error")

    (record,) = caplog.records
    assert record.__dict__["path"] == "/admin/ledger"


async def test_many_can_look_at_once(open_door: Open) -> None:
    door = await open_door()
    answers = await asyncio.gather(*(door.ask("/admin/ledger") for _ in range(20)))
    assert {answer.status for answer in answers} == {200}


# Replicas that come and go


async def test_a_replica_joins_and_its_row_is_the_answer(open_door: Open) -> None:
    door = await open_door()
    entry = {"url": "http://c.invalid:8000", "weight": 2, "labels": {"rack": "7"}, "api_key": "sk-hidden"}
    answer = await door.post("/admin/replicas", entry)

    assert answer.status == 201
    row = answer.json()
    assert row == (await door.rows())["c.invalid:8000"] | {"reading_age": row["reading_age"]}
    assert (row["origin"], row["state"], row["weight"], row["labels"]) == (
        "admin",
        "loading",
        2,
        {"rack": "7"},
    )
    assert row["why"]
    assert b"sk-hidden" not in answer.body.raw


async def test_a_url_alone_is_an_entry_too(open_door: Open) -> None:
    door = await open_door()
    answer = await door.post("/admin/replicas", "http://c.invalid:8000")
    assert (answer.status, answer.json()["name"]) == (201, "c.invalid:8000")


@pytest.mark.parametrize(
    "entry", ["http://a.invalid:8000", {"url": "http://A.INVALID:8000/"}, {"url": "http://c", "name": "b"}]
)
async def test_a_replica_joins_once(open_door: Open, entry: Any) -> None:
    door = await open_door()
    (await door.post("/admin/replicas", entry)).refused(409, "replica_exists")
    assert sorted(await door.rows()) == ["a", "b"]


MALFORMED: list[tuple[Any, str]] = [
    (b"", "not JSON"),
    (b"{bad", "not JSON"),
    (b"\xff", "not JSON"),
    (5, "replica: 5 (request body) is refused"),
    ([], "replica"),
    ({}, "replica.url"),
    ({"url": 5}, "replica.url"),
    ({"url": "file:///etc/hosts"}, "replica.url"),
    ({"url": "http://x@y"}, "without user and password"),
    ({"url": "http://y/?key=1"}, "without query"),
    ({"url": "http://[::1"}, "replica.url"),
    ({"url": "http://c", "nmae": "x"}, "did you mean name?"),
    ({"url": "http://c", "weight": 0}, "replica.weight"),
    ({"url": "http://c", "name": "a/b"}, "replica.name"),
    ({"url": "http://c", "role": "prefill"}, "replica.role"),
    ({"url": "http://c", "api_key": "a b"}, "replica.api_key: ***"),
    ({"url": "http://[::1]:1/%00"}, "control character"),
    ({"url": f"http://127.0.0.1:{OWN_PORT}"}, "the router itself"),
    ({"url": "http://169.254.169.254"}, "metadata"),
]


@pytest.mark.parametrize(("entry", "told"), MALFORMED)
async def test_what_cannot_be_a_replica_is_refused_with_the_reason(
    open_door: Open, entry: Any, told: str
) -> None:
    door = await open_door()
    assert told in (await door.post("/admin/replicas", entry)).refused(400, "invalid_request")["message"]
    assert sorted(await door.rows()) == ["a", "b"]


async def test_only_what_the_patterns_allow_may_join(open_door: Open) -> None:
    door = await open_door(allowed_urls=["http://*.gpu.invalid:8000"])
    refused = await door.post("/admin/replicas", "http://c.invalid:8000")
    assert "allowed_urls" in refused.refused(400, "invalid_request")["message"]
    assert (await door.post("/admin/replicas", "http://c.gpu.invalid:8000")).status == 201


async def test_a_body_that_is_too_large_is_refused(open_door: Open) -> None:
    door = await open_door()
    (await door.post("/admin/replicas", b" " * 70_000)).refused(413, "body_too_large")


async def test_a_body_that_does_not_arrive_is_given_up(
    open_door: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("replicarouter.admin.api.BODY_TIMEOUT", 0.05)
    door = await open_door()
    client = await Client.connect(door.port)
    await client.send(request("POST", "/admin/replicas", b"{}", {"Content-Length": "50"}))
    (await client.answer()).refused(408, "request_timeout")
    await client.closed()


async def test_an_idle_replica_is_drained_at_once_and_takes_up_its_duty_again(open_door: Open) -> None:
    door = await open_door()
    drained = await door.post("/admin/replicas/a/drain")
    assert (drained.status, drained.json()["state"]) == (200, "draining")
    assert (await door.post("/admin/replicas/a/drain")).status == 200
    undrained = await door.post("/admin/replicas/a/undrain")
    assert (undrained.status, undrained.json()["state"]) == (200, "ready")


async def test_a_busy_replica_is_drained_when_its_requests_end(open_door: Open) -> None:
    door = await open_door()
    fleet = door.watched.fleet
    have(fleet, "a", 1)
    assert (await door.post("/admin/replicas/a/drain")).status == 202
    have(fleet, "a", 0)
    assert (await door.post("/admin/replicas/a/drain")).status == 200


async def test_an_idle_replica_is_removed_at_once(open_door: Open) -> None:
    door = await open_door()
    answer = await door.ask("/admin/replicas/a", "DELETE")
    assert (answer.status, answer.body.entity) == (204, b"")
    assert sorted(await door.rows()) == ["b"]
    (await door.ask("/admin/replicas/a", "DELETE")).refused(404, "unknown_replica")


async def test_a_busy_replica_leaves_with_its_last_request(open_door: Open) -> None:
    door = await open_door()
    fleet = door.watched.fleet
    replica = named(fleet, "a")
    have(fleet, "a", 1)
    answer = await door.ask("/admin/replicas/a", "DELETE")
    assert (answer.status, answer.json()["outstanding"], replica.duty) == (202, 1, Duty.REMOVED)
    have(fleet, "a", 0)
    fleet.idle(replica)
    assert sorted(await door.rows()) == ["b"]


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("c.invalid:8000", "c.invalid:8000"),
        ("c.invalid:8000", "c.invalid%3A8000"),
        ("[::1]:8000", "[::1]:8000"),
        ("[::1]:8000", "%5B%3A%3A1%5D%3A8000"),
        ("drain", "drain"),
        ("..", "%2E%2E"),
    ],
)
async def test_names_are_found_however_they_are_written(open_door: Open, name: str, written: str) -> None:
    door = await open_door()
    entry = {"url": "http://c.invalid:8000", "name": name}
    assert (await door.post("/admin/replicas", entry)).status == 201
    if name != "..":
        assert (await door.post(f"/admin/replicas/{written}/drain")).json()["state"] == "draining"
        assert (await door.ask(f"/admin/replicas/{written}", "DELETE")).status == 204


@pytest.mark.parametrize("name", ["c", "A", "a%20", "a%00", "%ff", "x" * 5000])
@pytest.mark.parametrize("order", ["drain", "undrain", None])
async def test_an_unknown_name_is_404(open_door: Open, name: str, order: str | None) -> None:
    door = await open_door()
    path = f"/admin/replicas/{name}"
    answer = await (door.post(f"{path}/{order}") if order else door.ask(path, "DELETE"))
    answer.refused(404, "unknown_replica")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/admin/replicas", "GET,HEAD,POST"),
        ("GET", "/admin/replicas/a/drain", "POST"),
        ("POST", "/admin/replicas/a", "DELETE"),
        ("GET", "/admin/requests/c/cancel", "POST"),
    ],
)
async def test_each_path_says_which_methods_it_has(
    open_door: Open, method: str, path: str, allowed: str
) -> None:
    answer = await (await open_door()).ask(path, method)
    answer.refused(405, "method_not_allowed")
    assert sorted((answer.head.get("allow") or "").replace(" ", "").split(",")) == allowed.split(",")


# Requests that are ended


async def test_a_request_is_cancelled_by_either_id(open_door: Open) -> None:
    door = await open_door()
    ended: list[tuple[str, RouterError]] = []
    for name in ("one", "two"):
        exchange = an_exchange(client_id=f"client/{name}", upstream_id=name)
        exchange.on_interrupt = lambda: True
        door.watched.fleet.ledger.in_flight[name] = exchange
    for request_id in ("one", "client%2Ftwo"):
        assert (await door.post(f"/admin/requests/{request_id}/cancel")).status == 202
    for name, exchange in door.watched.fleet.ledger.in_flight.items():
        assert exchange.interrupted is not None
        ended.append((name, exchange.interrupted))
    assert [(name, error.status, error.code) for name, error in ended] == [
        ("one", 403, "cancelled"),
        ("two", 403, "cancelled"),
    ]


async def test_what_is_not_in_flight_cannot_be_cancelled(open_door: Open) -> None:
    door = await open_door()
    door.watched.fleet.ledger.in_flight["ended"] = an_exchange(client_id="ended")
    for request_id in ("ended", "nobody", "%ff"):
        (await door.post(f"/admin/requests/{request_id}/cancel")).refused(404, "unknown_request")


async def test_decisions_are_shown_by_request_and_listed(open_door: Open) -> None:
    door = await open_door()
    replicas = door.watched.fleet.replicas
    for number in range(LISTED + 5):
        exchange = an_exchange(client_id=f"c{number}", upstream_id=f"u{number}", model="m1")
        view = View(replicas, replicas, door.watched.clock(), Random(1))
        case = Case("random", RandomChoice(), None, a_request(), exchange, view, (), None)
        door.decisions.keep(Draft(case), replicas[number % 2])
    door.watched.clock.move(2.0)

    for name in ("c7", "u7"):
        document = (await door.ask(f"/admin/decisions/{name}")).json()
        assert document["request_id"] == name
        assert [(one["chosen"], one["age"]) for one in document["attempts"]] == [("b", 2.0)]
    rows = (await door.ask("/admin/decisions")).json()["decisions"]
    assert [row["request_id"] for row in rows] == [f"c{number}" for number in range(LISTED + 4, 4, -1)]
    assert rows[0] == {
        "request_id": "c104",
        "upstream_id": "u104",
        "model": "m1",
        "policy": "random",
        "chosen": "a",
        "affinity": "none",
        "attempt": 1,
        "age": 2.0,
    }


async def test_the_newest_decisions_of_an_id_are_shown(open_door: Open) -> None:
    door = await open_door()
    replicas = door.watched.fleet.replicas
    for _ in range(MOST_OF_ONE + 5):
        exchange = an_exchange(client_id="same", model="m1")
        view = View(replicas, replicas, door.watched.clock(), Random(1))
        case = Case("random", RandomChoice(), None, a_request(), exchange, view, (), None)
        door.decisions.keep(Draft(case), replicas[0])
        door.watched.clock.move(1.0)

    attempts = (await door.ask("/admin/decisions/same")).json()["attempts"]
    assert [one["age"] for one in attempts] == list(range(MOST_OF_ONE, 0, -1))


async def test_a_request_without_a_decision_is_404_and_says_why(open_door: Open) -> None:
    refused = (await (await open_door()).ask("/admin/decisions/x")).refused(404, "unknown_request")
    assert f"at most {PER_SECOND} a second" in refused["message"]
    assert "policy_options.decisions_per_second" in refused["message"]
