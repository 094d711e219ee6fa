import json
from typing import Any

import pytest

from replicarouter.simulator.control import Control
from replicarouter.simulator.faults import Fault
from replicarouter.simulator.records import Records
from replicarouter.simulator.wire import HttpRequest, Reply


class Scene:
    """A control whose engine only writes down what it is told."""

    def __init__(self) -> None:
        self.records = Records()
        self.faults: list[Fault] = []
        self.control = Control(
            self.records,
            inject=self.faults.append,
            clear=self.faults.clear,
            faults=lambda: {"faults": [fault.as_json() for fault in self.faults]},
        )

    def ask(self, method: str, path: str, said: Any = None) -> Reply:
        body = b"" if said is None else json.dumps(said).encode()
        return self.control.respond(HttpRequest(method, path, {}, body, modern=True))


def test_fault_is_said_shown_and_cleared() -> None:
    scene = Scene()
    said = scene.ask("POST", "/sim/fault", {"kind": "hang", "count": 2})
    assert said.status == 200
    assert scene.faults == [Fault(kind="hang", count=2)]
    assert scene.ask("GET", "/sim/fault") == said
    assert json.loads(scene.ask("DELETE", "/sim/fault").body) == {"faults": []}


@pytest.mark.parametrize("said", [None, [], {"kind": "nonsense"}, {"kind": "hang", "at": "tail"}])
def test_what_is_no_fault_is_refused_with_the_reason(said: Any) -> None:
    scene = Scene()
    refused = scene.ask("POST", "/sim/fault", said)
    assert refused.status == 400
    assert json.loads(refused.body)["error"]["message"]
    assert scene.faults == []


def test_requests_are_shown_by_name() -> None:
    scene = Scene()
    scene.records.note("n1", "received")
    shown = json.loads(scene.ask("GET", "/sim/requests").body)
    assert shown["received"] == 1
    assert shown["requests"] == {"n1": {"received": 1}}


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [("PUT", "/sim/fault", "GET, POST, DELETE"), ("POST", "/sim/requests", "GET")],
)
def test_wrong_method_is_told_the_right_one(method: str, path: str, allow: str) -> None:
    refused = Scene().ask(method, path)
    assert (refused.status, refused.allow) == (405, allow)


def test_other_paths_are_not_found() -> None:
    assert Scene().ask("GET", "/sim/nothing").status == 404
