"""Keys of callers: how they are given, what a bad file says, and that they are never shown."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from replicarouter.settings import NamedKey, Settings, SettingsError, load_settings, named_keys
from replicarouter.settings.api_keys import name_of

URL = "http://127.0.0.1:8001"
SECRET = "sk-very-secret"


def settings(**values: Any) -> Settings:
    return Settings.model_validate({"replicas": [URL], **values})


def pairs(*keys: NamedKey) -> list[tuple[str, str]]:
    return [(key.name, key.secret.get_secret_value()) for key in keys]


def from_file(text: str, tmp_path: Path) -> list[tuple[str, str]]:
    path = tmp_path / "keys"
    path.write_bytes(text.encode("utf-8"))
    return pairs(*named_keys(settings(api_keys_file=str(path))))


def test_without_keys_there_are_none() -> None:
    assert named_keys(settings()) == ()


def test_a_list_gives_each_key_a_name_that_stays_and_tells_nothing() -> None:
    (name, secret), other = pairs(*named_keys(settings(api_keys=[SECRET, "sk-2"])))
    assert secret == SECRET
    assert name == name_of(SECRET) == "key-c2273471f9dc"
    assert other[0] != name


def test_a_mapping_names_them() -> None:
    keys = {"alice": "sk-1", "team/b@example.org": "sk-2"}
    assert pairs(*named_keys(settings(api_keys=keys))) == list(keys.items())


def test_keys_come_from_the_environment_in_both_forms() -> None:
    for text, name in (('["sk-1"]', name_of("sk-1")), ('{"alice": "sk-1"}', "alice")):
        environ = {"REPLICAROUTER_API_KEYS": text}
        loaded = load_settings(flags={"replicas": [URL]}, environ=environ, config=None)
        assert pairs(*named_keys(loaded.settings)) == [(name, "sk-1")]


@pytest.mark.parametrize(
    "keys", [[], {}, SECRET, [SECRET, "a b"], [1], {"alice": ""}, {"a b": SECRET}, {"alice": f"{SECRET} x"}]
)
def test_what_is_no_key_is_refused_without_being_shown(keys: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        settings(api_keys=keys)
    problems = [one for one in caught.value.errors() if one["type"] == "refused"]
    assert [one["ctx"]["shown"] for one in problems] == ["***"]


def test_the_file_holds_a_key_a_line(tmp_path: Path) -> None:
    text = "# keys\n\nalice sk-1\n  bob\tsk-2  # since May\nsk-3\r\nalice sk-4\n"
    named = [("alice", "sk-1"), ("bob", "sk-2"), (name_of("sk-3"), "sk-3"), ("alice", "sk-4")]
    assert from_file(text, tmp_path) == named
    assert from_file("\ufeffalice sk-1", tmp_path) == [("alice", "sk-1")]


def test_the_file_is_read_at_each_call(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("sk-1")
    both = settings(api_keys={"alice": "sk-0"}, api_keys_file=str(path))
    assert len(named_keys(both)) == 2
    path.write_text("sk-1\nsk-2")
    assert len(named_keys(both)) == 3


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"alice {SECRET}\nbob {SECRET} {SECRET}", 2),
        (f"a\u00e9 {SECRET}", 1),
        (f"\n\nalice {SECRET}\u00e9", 3),
        (f"al=ice {SECRET}", 1),
        (f"alice {SECRET}\nbob {SECRET}", 2),
    ],
)
def test_a_bad_line_is_named_and_its_key_is_not(text: str, line: int, tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        from_file(text, tmp_path)
    told = str(caught.value)
    assert f"keys' line {line}" in told
    assert SECRET not in told


@pytest.mark.parametrize("content", [b"", b"# none\n\n", b"\xff\xfe"])
def test_a_file_that_would_leave_the_door_open_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes(content)
    with pytest.raises(SettingsError, match=r"api_keys_file: .*keys"):
        named_keys(settings(api_keys_file=str(path)))


@pytest.mark.parametrize("missing", ["nowhere", "."])
def test_a_file_that_cannot_be_read_is_told_when_settings_load(missing: str) -> None:
    flags = {"replicas": [URL]}
    with pytest.raises(SettingsError, match=r"api_keys_file: .* cannot be read"):
        load_settings(flags=flags, environ={"REPLICAROUTER_API_KEYS_FILE": missing}, config=None)


@pytest.mark.parametrize(
    ("values", "exposed"),
    [
        ({}, True),
        ({"api_keys": ["k"]}, False),
        ({"api_keys_file": "keys"}, False),
        ({"api_keys": ["k"], "expose_replica": True}, True),
        ({"expose_replica": False}, False),
    ],
)
def test_replicas_are_named_to_callers_by_default_only_without_keys(
    values: dict[str, Any], exposed: bool
) -> None:
    assert settings(**values).expose_replica is exposed


def test_keys_are_shown_nowhere() -> None:
    with_keys = settings(api_keys={"alice": SECRET})
    assert SECRET not in f"{with_keys!r} {with_keys} {with_keys.model_dump_json()} {named_keys(with_keys)}"
