"""What flags, environment and file say, each by itself."""

from functools import reduce
from typing import Any

import pytest

from replicarouter.errors import SettingsError
from replicarouter.settings import Settings
from replicarouter.settings.file import FileContent
from replicarouter.settings.keys import Key, keys_of
from replicarouter.settings.sources import EnvironmentSource, FileSource, FlagSource

KEYS = {key.name: key for key in keys_of(Settings)}


def from_environment(**environ: str) -> EnvironmentSource:
    return EnvironmentSource(Settings, environ)


@pytest.mark.parametrize("key", KEYS.values(), ids=lambda key: key.name)
def test_every_setting_has_its_variable(key: Key) -> None:
    source = from_environment(**{key.variable: "[1]"})
    assert source.origin(key) == f"environment {key.variable}"
    value: Any = reduce(lambda section, part: section[part], key.path, source())
    assert value == ([1] if key.structured else "[1]")


@pytest.mark.parametrize("key", KEYS.values(), ids=lambda key: key.name)
def test_null_is_a_value_where_json_is_read(key: Key) -> None:
    value: Any = reduce(
        lambda section, part: section[part], key.path, from_environment(**{key.variable: "null"})()
    )
    if key.name == "replicas":
        assert value == ["null"]
    else:
        assert value == (None if key.structured else "null")


def test_variables_of_one_section_come_together() -> None:
    source = from_environment(
        REPLICAROUTER_ADMIN__PORT="1", REPLICAROUTER_ADMIN__HOST="", REPLICAROUTER_PORT="2"
    )
    assert source() == {"port": "2", "admin": {"port": "1", "host": ""}}
    assert source.origin(KEYS["admin.token"]) is None


def test_only_the_environment_that_is_given_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPLICAROUTER_PORT", "9000")
    assert from_environment()() == {}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("http://a:1", ["http://a:1"]),
        ("http://a:1, http://b:2,", ["http://a:1", "http://b:2"]),
        ('["http://a:1"]', ["http://a:1"]),
        (' [{"url": "http://a:1"}]', [{"url": "http://a:1"}]),
        ("", []),
    ],
)
def test_replicas_may_be_a_comma_separated_list(text: str, value: object) -> None:
    assert from_environment(REPLICAROUTER_REPLICAS=text)() == {"replicas": value}


@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("REPLICAROUTER_PROT", "did you mean REPLICAROUTER_PORT?"),
        ("REPLICAROUTER_ADMIN_PORT", "did you mean REPLICAROUTER_ADMIN__PORT?"),
        ("REPLICAROUTER_ADMIN", "unknown"),
        ("REPLICAROUTER_port", "did you mean REPLICAROUTER_PORT?"),
        ("REPLICAROUTER_", "unknown"),
        ("REPLICAROUTER_PORT_NUMBER", "unknown"),
        ("REPLICAROUTER_ADMIN__SERVICE_HOST", "unknown"),
    ],
)
def test_unknown_variable_is_named(variable: str, hint: str) -> None:
    with pytest.raises(SettingsError) as caught:
        from_environment(**{variable: "1"})
    assert variable in str(caught.value)
    assert hint in str(caught.value)


@pytest.mark.parametrize("name", ["api_keys", "aliases", "admission.priority_header", "replicas"])
def test_variable_that_must_be_json_is_named(name: str) -> None:
    variable = KEYS[name].variable
    with pytest.raises(SettingsError) as caught:
        from_environment(**{variable: "{nonsense"})
    assert f"{name} (environment {variable}) is refused: give JSON" in str(caught.value)


def test_all_bad_variables_are_told_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        from_environment(REPLICAROUTER_A="1", REPLICAROUTER_B="1", REPLICAROUTER_ALIASES="x")
    assert len(str(caught.value).splitlines()) == 3


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PATH", "/bin"),
        ("REPLICAROUTERS", "1"),
        ("XREPLICAROUTER_PORT", "1"),
        ("REPLICAROUTER_CMD", "replicarouter"),
        ("REPLICAROUTER_ARGS", "--port 1"),
        ("REPLICAROUTER_SERVICE_HOST", "10.0.0.1"),
        ("REPLICAROUTER_SERVICE_PORT", "80"),
        ("REPLICAROUTER_SERVICE_PORT_HTTP", "80"),
        ("REPLICAROUTER_PORT", "tcp://10.0.0.1:80"),
        ("REPLICAROUTER_PORT_80_TCP", "tcp://10.0.0.1:80"),
        ("REPLICAROUTER_PORT_80_TCP_ADDR", "10.0.0.1"),
        ("REPLICAROUTER_ADMIN_SERVICE_HOST", "10.0.0.1"),
        ("REPLICAROUTER_ADMIN_PORT", "tcp://10.0.0.1:80"),
        ("REPLICAROUTER_ADMIN_PORT_80_UDP_PROTO", "udp"),
    ],
)
def test_variables_of_others_are_left_alone(variable: str, value: str) -> None:
    assert from_environment(**{variable: value})() == {}


def test_flags_are_put_into_their_sections() -> None:
    source = FlagSource(Settings, {"port": "1", "admin.port": "2", "admin.host": "a", "replicas": ["b"]})
    assert source() == {"port": "1", "admin": {"port": "2", "host": "a"}, "replicas": ["b"]}
    assert source.origin(KEYS["admin.port"]) == "flag --admin-port"
    assert source.origin(KEYS["policy"]) is None


def file(**values: object) -> FileSource:
    lines = {("admin",): 3, ("admin", "host"): 4, ("replicas", 0): 9}
    return FileSource(Settings, FileContent(values, lines), "router.yaml")


def test_file_gives_what_it_says() -> None:
    source = file(admin={"host": "a"}, prot=1, aliases={"a": "b"})
    assert source() == {"admin": {"host": "a"}, "prot": 1, "aliases": {"a": "b"}}
    assert source.origin(KEYS["admin.host"]) == "router.yaml"
    assert source.origin(KEYS["admin.port"]) is None


def test_line_of_a_place_is_that_of_what_holds_it() -> None:
    source = file()
    assert source.place(("admin", "host")) == "router.yaml line 4"
    assert source.place(("admin", "port")) == "router.yaml line 3"
    assert source.place(("replicas", 0, "url")) == "router.yaml line 9"
    assert source.place(("port",)) == "router.yaml"


def test_sections_that_are_no_mappings_are_known() -> None:
    source = file(admin=5, log=[], drain={}, aliases=5, port={}, prot=5)
    assert source.misshapen()() == {"admin": 5, "log": []}
