"""What this version does not have yet is refused or told, and nothing else is."""

from typing import Any

import pytest

from replicarouter.settings import ReplicaSettings, Settings
from replicarouter.settings.errors import Location, dotted
from replicarouter.settings.keys import keys_of
from replicarouter.settings.scope import (
    REFUSED,
    WITHOUT_EFFECT,
    refused,
    scope_note,
    without_effect,
)

URL = "http://127.0.0.1:8001"


def settings(**values: Any) -> Settings:
    return Settings.model_validate({"replicas": [URL], **values})


def source(location: Location) -> str:
    return f"from {dotted(location)}"


def test_defaults_are_neither_refused_nor_told() -> None:
    assert refused(settings(), source=source) == []
    assert without_effect(settings()) == []


def test_defaults_written_out_are_neither_refused_nor_told() -> None:
    written = settings().model_dump()
    assert refused(settings(**written), source=source) == []
    assert without_effect(settings(**written)) == []


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({"workers": 2}, ["workers"]),
        (
            {"replicas": [{"url": URL, "role": "prefill"}, {"url": "http://b", "role": "decode"}]},
            ["replicas[0].role", "replicas[1].role"],
        ),
        ({"replicas": [{"url": URL, "max_outstanding": 4, "role": "both"}]}, []),
        ({"admission": {"max_outstanding_per_replica": 8}}, []),
        ({"replicas": [{"url": URL, "api_key": "k", "labels": {"a": "b"}}]}, []),
        ({"extra_paths": ["/v1/x"], "expose_replica": False}, []),
        ({"api_keys": ["k"], "tls": {"cert": "a", "key": "b"}, "aliases": {"a": "b"}}, []),
    ],
)
def test_what_would_silently_be_lost_is_refused(values: dict[str, Any], names: list[str]) -> None:
    lines = refused(settings(**values), source=source)
    assert [line.split(":")[0] for line in lines] == names
    for name, line in zip(names, lines, strict=True):
        assert f"(from {name}) is refused: this version does not offer it yet; leave it out" in line


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({"retry": {"budget": 0.1, "max_attempts": 2}}, []),
        ({"sse_keepalive": 5}, []),
        ({"policy_options": {"stick_to_api_key": True}}, ["policy_options.stick_to_api_key"]),
        ({"policy_options": {"session_headers": ["X-A"]}}, ["policy_options.session_headers"]),
        ({"admission": {"priority_header": {"name": "X-P", "values": ["a"]}}}, []),
        ({"replicas": [{"url": URL, "name": "a", "weight": 3}]}, []),
        ({"connector": {"limit": 5}, "timeouts": {"idle": 3}}, []),
        ({"admission": {"max_queued": 5, "queue_timeout": 3}}, []),
    ],
)
def test_what_is_accepted_without_effect_is_told(values: dict[str, Any], names: list[str]) -> None:
    told = without_effect(settings(**values))
    assert [name for name in names if name not in told] == []
    assert bool(told) is bool(names)


def test_both_tables_name_settings_that_exist() -> None:
    names = [key.name for key in keys_of(Settings)]
    names += [f"replicas[].{key.name}" for key in keys_of(ReplicaSettings)]
    for entry in (*REFUSED, *WITHOUT_EFFECT):
        assert any(name == entry or name.startswith(f"{entry}.") for name in names)


def test_no_setting_is_in_both_tables() -> None:
    assert not set(REFUSED) & set(WITHOUT_EFFECT)


def test_note_says_what_becomes_of_a_setting() -> None:
    assert scope_note("port") == ""
    assert all(scope_note(name) == "in this version only the default" for name in REFUSED)
    assert all(scope_note(name) == "no effect in this version" for name in WITHOUT_EFFECT)
    assert scope_note("replicas[].weight") == ""
