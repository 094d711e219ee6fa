"""What the router answers by itself."""

import json
from typing import Any

import pytest

from replicarouter.admin.answers import OwnAnswers
from replicarouter.fleet.lifecycle import Event
from replicarouter.fleet.registry import Fleet
from replicarouter.protocol.answer import LocalAnswer
from tests.scene import a_fleet, named


class Own:
    """The answers of a router over a fleet; `draining` is whether it shuts down."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.draining = False
        self.page = b""
        self.answers = OwnAnswers(fleet, lambda: self.page, version="9.9", draining=lambda: self.draining)

    def get(self, target: str) -> LocalAnswer:
        path, _, query = target.partition("?")
        found = self.answers.find(path, query)
        assert found is not None
        return found

    def json(self, target: str) -> tuple[int, Any]:
        answer = self.get(target)
        return answer.status, json.loads(answer.body)

    def refused(self, target: str) -> tuple[int, str, str]:
        status, document = self.json(target)
        return status, document["error"]["code"], document["error"]["message"]


@pytest.fixture
def own() -> Own:
    """Two ready replicas of two models."""
    return Own(a_fleet("a", "b", models=("m1", "org/m2")))


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/model", "/v1/chat/completions", "/healthz", "/Health", ""])
def test_other_paths_are_not_answered(own: Own, path: str) -> None:
    assert own.answers.find(path, "") is None


def test_a_living_process_is_healthy_whatever_its_replicas_do(own: Own) -> None:
    for replica in own.fleet:
        own.fleet.tell(replica, Event.FAILED, "gone")
    own.draining = True

    assert own.json("/health") == (200, {"status": "ok"})


def test_the_version_is_told(own: Own) -> None:
    assert own.json("/version") == (200, {"version": "9.9", "name": "replicarouter"})


def test_metrics_are_written_when_they_are_asked_for(own: Own) -> None:
    for own.page in (b"one 1.0\n", b"one 2.0\n"):
        page = own.get("/metrics")
        assert page.body == own.page
    assert page.content_type.startswith("text/plain")


# Ready


def test_ready_while_one_pool_is(own: Own) -> None:
    own.fleet.tell(named(own.fleet, "a"), Event.FAILED, "gone")
    assert own.json("/ready") == (200, {"status": "ready", "models": ["m1", "org/m2"]})


def test_not_ready_without_a_ready_replica_and_why(own: Own) -> None:
    for replica in own.fleet:
        own.fleet.tell(replica, Event.FAILED, "refuses connections")
    status, code, message = own.refused("/ready")

    assert (status, code) == (503, "no_replica")
    assert "a: unhealthy (refuses connections)" in message
    assert dict(own.get("/ready").headers)["Retry-After"]


def test_not_ready_before_any_model_is_known() -> None:
    status, _, message = Own(a_fleet("a", models=(), ready=False)).refused("/ready")
    assert status == 503
    assert "a: loading" in message


def test_one_model_can_be_asked_for(own: Own) -> None:
    alone = named(own.fleet, "a")
    own.fleet.list_models(alone, [{"id": "m1"}])
    own.fleet.tell(named(own.fleet, "b"), Event.FAILED, "gone")

    assert own.json("/ready?model=m1") == (200, {"status": "ready", "models": ["m1"]})
    assert own.refused("/ready?model=org%2Fm2")[:2] == (503, "no_replica")
    assert own.refused("/ready?model=m3")[:2] == (404, "model_not_found")


@pytest.mark.parametrize("query", ["", "?", "?model=", "?other=1"])
def test_without_a_model_in_the_query_any_will_do(own: Own, query: str) -> None:
    assert own.get(f"/ready{query}").status == 200


def test_not_ready_while_shutting_down(own: Own) -> None:
    own.draining = True
    assert own.refused("/ready")[:2] == (503, "draining")


# Models


def test_models_are_listed_as_openai_lists_them(own: Own) -> None:
    assert own.json("/v1/models") == (200, {"object": "list", "data": [{"id": "m1"}, {"id": "org/m2"}]})


def test_no_models_are_an_empty_list() -> None:
    fleet = a_fleet("a", models=(), ready=False)
    assert Own(fleet).json("/v1/models") == (200, {"object": "list", "data": []})


@pytest.mark.parametrize("path", ["org/m2", "org%2Fm2", "org%2fm2"])
def test_one_model_is_described_by_its_name(own: Own, path: str) -> None:
    assert own.json(f"/v1/models/{path}") == (200, {"id": "org/m2"})


@pytest.mark.parametrize("path", ["m3", "", "m1/", "%", "%ff", "x" * 10_000, "\udcff"])
def test_an_unknown_model_is_unknown(own: Own, path: str) -> None:
    assert own.refused(f"/v1/models/{path}")[:2] == (404, "model_not_found")


def test_an_unknown_model_may_still_be_loading() -> None:
    fleet = a_fleet("a", models=(), ready=False)
    assert Own(fleet).refused("/v1/models/m1")[:2] == (503, "no_replica")
