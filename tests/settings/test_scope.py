"""What this version does not have yet is refused, and nothing else is."""

from typing import Any

import pytest

from replicarouter.settings import ReplicaSettings, Settings
from replicarouter.settings.errors import Location, dotted
from replicarouter.settings.keys import keys_of
from replicarouter.settings.scope import (
    REFUSED,
    refused,
    scope_note,
)

URL = "http://127.0.0.1:8001"


def settings(**values: Any) -> Settings:
    return Settings.model_validate({"replicas": [URL], **values})


def source(location: Location) -> str:
    return f"from {dotted(location)}"


def test_defaults_are_not_refused() -> None:
    assert refused(settings(), source=source) == []


def test_defaults_written_out_are_not_refused() -> None:
    written = settings().model_dump()
    assert refused(settings(**written), source=source) == []


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({"workers": 2}, []),
        (
            {"replicas": [{"url": URL, "role": "prefill"}, {"url": "http://b", "role": "decode"}]},
            ["replicas[0].role", "replicas[1].role"],
        ),
        ({"replicas": [{"url": URL, "max_outstanding": 4, "role": "both"}]}, []),
        ({"admission": {"max_outstanding_per_replica": 8}}, []),
        ({"replicas": [{"url": URL, "api_key": "k", "labels": {"a": "b"}}]}, []),
        ({"extra_paths": ["/v1/x"], "expose_replica": False}, []),
        ({"policy_options": {"stick_to_api_key": True, "shadow": "random"}}, []),
        ({"pools": {"m1": {"policy": "random"}}}, []),
        ({"api_keys": ["k"], "tls": {"cert": "a", "key": "b"}, "aliases": {"a": "b"}}, []),
    ],
)
def test_what_would_silently_be_lost_is_refused(values: dict[str, Any], names: list[str]) -> None:
    lines = refused(settings(**values), source=source)
    assert [line.split(":")[0] for line in lines] == names
    for name, line in zip(names, lines, strict=True):
        assert f"(from {name}) is refused: this version does not offer it yet; leave it out" in line


def test_the_table_names_settings_that_exist() -> None:
    names = [key.name for key in keys_of(Settings)]
    names += [f"replicas[].{key.name}" for key in keys_of(ReplicaSettings)]
    for entry in REFUSED:
        assert any(name == entry or name.startswith(f"{entry}.") for name in names)


def test_note_says_what_becomes_of_a_setting() -> None:
    assert scope_note("port") == ""
    assert all(scope_note(name) == "in this version only the default" for name in REFUSED)
    assert scope_note("replicas[].weight") == ""
