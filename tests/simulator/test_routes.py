import json

import pytest

from replicarouter.simulator.api import Api, GenerationRequest
from replicarouter.simulator.exposition import MetricsPage
from replicarouter.simulator.kv_blocks import KvBlocks
from replicarouter.simulator.measures import Measures
from replicarouter.simulator.options import EngineOptions
from replicarouter.simulator.profiles import PROFILES
from replicarouter.simulator.routes import Routes
from replicarouter.simulator.scheduler import Scheduler
from replicarouter.simulator.wire import HttpRequest, Reply

OPTIONS = EngineOptions()
SCHEDULER = Scheduler(PROFILES["instant"], max_num_seqs=1, blocks=KvBlocks(100, 16), measures=Measures())
ROUTES = Routes(Api("sim", 2048), MetricsPage(OPTIONS, SCHEDULER, 1.0), 1)
JSON = {"content-type": "application/json"}


def respond(method: str, path: str, body: bytes = b"") -> Reply | GenerationRequest:
    return ROUTES.respond(HttpRequest(method, path, JSON if body else {}, body, modern=True))


def reply(method: str, path: str, body: bytes = b"") -> Reply:
    outcome = respond(method, path, body)
    assert isinstance(outcome, Reply)
    return outcome


@pytest.mark.parametrize("path", ["/health", "/ping"])
def test_health_is_an_empty_success(path: str) -> None:
    assert reply("GET", path) == Reply(200)


def test_version_says_that_it_is_simulated() -> None:
    assert "simulated" in json.loads(reply("GET", "/version").body)["version"]


def test_models_lists_the_one() -> None:
    (card,) = json.loads(reply("GET", "/v1/models").body)["data"]
    assert (card["id"], card["max_model_len"]) == ("sim", 2048)


def test_metrics_page_is_prometheus_text() -> None:
    page = reply("GET", "/metrics")
    assert page.content_type.startswith("text/plain; version=")
    assert b"\nvllm:num_requests_running{" in page.body


def test_tokenize_answers_at_once() -> None:
    answer = json.loads(reply("POST", "/tokenize", b'{"prompt":"Hello world"}').body)
    assert list(answer) == ["count", "max_model_len", "tokens", "token_strs"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", b'{"messages":[{"role":"user","content":"x"}]}'),
        ("/v1/completions", b'{"prompt":"x"}'),
    ],
)
def test_generations_go_to_the_scheduler(path: str, body: bytes) -> None:
    assert isinstance(respond("POST", path, body), GenerationRequest)


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/v1/chat/completions", "POST"),
        ("OPTIONS", "/v1/chat/completions", "POST"),
        ("HEAD", "/health", "GET"),
        ("POST", "/health", "GET"),
        ("DELETE", "/v1/models", "GET"),
    ],
)
def test_wrong_method_is_told_the_right_one(method: str, path: str, allow: str) -> None:
    assert reply(method, path) == Reply(405, b'{"detail":"Method Not Allowed"}', allow=allow)


@pytest.mark.parametrize("path", ["/", "/v1/embeddings", "/v1/nosuch", "/v1/models/"])
def test_unknown_path_is_not_found(path: str) -> None:
    assert reply("GET", path) == Reply(404, b'{"detail":"Not Found"}')


def test_bad_body_gets_the_engines_error() -> None:
    refused = reply("POST", "/v1/chat/completions", b"{")
    assert refused.status == 400
    assert json.loads(refused.body)["error"]["code"] == 400
