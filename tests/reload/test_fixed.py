"""What may change while the router serves, and what keeps its running value."""

from typing import Any

import pytest

from replicarouter.reload.fixed import FIXED, PAIR, changed_names, keep_fixed
from replicarouter.settings import Settings
from replicarouter.settings.keys import keys_of


def settings(**values: Any) -> Settings:
    return Settings.model_validate({"replicas": ["http://a:1"], **values})


CHANGEABLE: list[dict[str, Any]] = [
    {"replicas": ["http://b:1"]},
    {"policy": "random"},
    {"admission": {"max_queued": 5, "queue_timeout": 3, "max_outstanding_per_replica": 7}},
    {"retry": {"max_attempts": 1, "budget": 0.5}},
    {"timeouts": {"total": 5, "idle": 6, "response_head": 7, "client_body": 8}},
    {"max_body_bytes": 5},
    {"api_keys": ["k"]},
    {"aliases": {"a": "b"}},
    {"admin": {"token": "t", "allowed_urls": ["http://a"]}},
    {"log": {"level": "debug", "sample": 0.1}},
    {"tracing": {"start": False, "sample_ratio": 0.5}},
    {"drain": {"timeout": 3}},
    {"cors": {"allow_origins": ["https://a.example"]}},
    {"trusted_proxies": ["10.0.0.0/8"]},
    {"sse_keepalive": 5},
    {"expose_replica": False},
]

FIXED_VALUES: list[tuple[dict[str, Any], list[str]]] = [
    ({"host": "127.0.0.2"}, ["host"]),
    ({"port": 1}, ["port"]),
    ({"admin": {"host": "127.0.0.2", "port": 2}}, ["admin.host", "admin.port"]),
    ({"connector": {"limit": 5, "keepalive": 1}}, ["connector.limit", "connector.keepalive"]),
    ({"health": {"interval": 9}}, ["health.interval"]),
    ({"scrape": {"interval": 9}}, ["scrape.interval"]),
    ({"log": {"format": "json"}}, ["log.format"]),
    (
        {"tracing": {"otlp_endpoint": "http://c:4318", "service_name": "edge"}},
        ["tracing.otlp_endpoint", "tracing.service_name"],
    ),
    ({"tls": {"cert": "c", "key": "k"}}, ["tls.cert", "tls.key"]),
]


@pytest.mark.parametrize("values", CHANGEABLE, ids=str)
def test_what_can_change_is_wanted_as_it_is(values: dict[str, Any]) -> None:
    wanted = settings(**values)
    taken, kept = keep_fixed(settings(), wanted)
    assert (taken, kept) == (wanted, [])


@pytest.mark.parametrize(("values", "names"), FIXED_VALUES, ids=str)
def test_what_cannot_change_is_kept_and_named(values: dict[str, Any], names: list[str]) -> None:
    running = settings()
    taken, kept = keep_fixed(running, settings(**values, policy="random"))
    assert kept == names
    assert changed_names(running, taken) == ["policy"]


def test_the_rest_of_a_section_changes_beside_what_is_kept() -> None:
    wanted = settings(admin={"port": 5, "token": "t"}, timeouts={"connect": 1, "total": 9})
    taken, kept = keep_fixed(settings(), wanted)
    assert kept == ["admin.port", "timeouts.connect"]
    assert (taken.admin.port, taken.timeouts.connect, taken.timeouts.total) == (8081, 5, 9)
    assert taken.admin.token == wanted.admin.token


def test_a_port_that_speaks_tls_may_show_another_certificate() -> None:
    running = settings(tls={"cert": "c", "key": "k"})
    wanted = settings(tls={"cert": "c2", "key": "k2"})
    assert keep_fixed(running, wanted) == (wanted, [])
    assert keep_fixed(running, settings())[1] == list(PAIR)


def test_changed_names_are_those_of_leaves() -> None:
    assert changed_names(settings(), settings()) == []
    after = settings(retry={"budget": 0.1}, log={"level": "error"}, replicas=["http://a:2"])
    assert changed_names(settings(), after) == ["replicas", "retry.budget", "log.level"]


@pytest.mark.parametrize("entry", FIXED)
def test_the_table_names_settings_that_exist(entry: str) -> None:
    names = [key.name for key in keys_of(Settings)]
    assert any(name == entry or name.startswith(f"{entry}.") for name in names)
