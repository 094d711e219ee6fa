"""The keys of the tree, and the environment."""

from functools import reduce
from typing import Any

import pytest

from replicarouter.settings import Settings
from replicarouter.settings_errors import SettingsError
from replicarouter.settings_sources import Gathered, Key, gather, keys_of, known_keys

KEYS = {key.name: key for key in keys_of(Settings)}


def from_environment(**environ: str) -> Gathered:
    return gather(Settings, flags={}, environ=environ, config=None)


def test_keys_have_dotted_names_variables_and_flags() -> None:
    port = KEYS["admin.port"]
    assert (port.path, port.variable) == (("admin", "port"), "REPLICAROUTER_ADMIN__PORT")
    assert port.flag is not None
    assert port.flag.name == "--admin-port"
    assert KEYS["max_body_bytes"].variable == "REPLICAROUTER_MAX_BODY_BYTES"
    assert KEYS["admin.token"].flag is None


def test_variables_and_flags_are_told_apart() -> None:
    assert len({key.variable for key in KEYS.values()}) == len(KEYS)
    flags = [key.flag.name for key in KEYS.values() if key.flag]
    assert len(set(flags)) == len(flags)


def test_lists_and_mappings_are_structured() -> None:
    assert {name for name, key in KEYS.items() if key.structured} == {
        "replicas",
        "admin.allowed_urls",
        "policy_options.session_headers",
        "admission.shares",
        "admission.priority_header",
        "api_keys",
        "trusted_proxies",
        "extra_paths",
        "aliases",
        "cors.allow_origins",
    }


@pytest.mark.parametrize("key", KEYS.values(), ids=lambda key: key.name)
def test_every_setting_has_its_variable(key: Key) -> None:
    gathered = from_environment(**{key.variable: "[1]"})
    assert gathered.origins[key.name] == f"environment {key.variable}"
    value: Any = reduce(lambda section, part: section[part], key.path, gathered.values)
    assert value == ([1] if key.structured else "[1]")


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
    assert from_environment(REPLICAROUTER_REPLICAS=text).values == {"replicas": value}


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
    assert from_environment(**{variable: value}).values == {}


def test_section_that_is_no_mapping_stays_to_be_refused() -> None:
    gathered = Gathered({"admin": 5}, {"admin.port": "default"})
    gathered.set(("admin", "port"), "1", "flag --admin-port")
    assert gathered.values == {"admin": 5}
    assert gathered.origins == {"admin.port": "default"}


def test_known_keys_are_those_of_the_section_at_a_place() -> None:
    assert known_keys(Settings, ())[:3] == ["host", "port", "admin"]
    assert known_keys(Settings, ("scrape",)) == ["interval"]
    assert known_keys(Settings, ("replicas", 3))[:2] == ["url", "name"]
    assert known_keys(Settings, ("admission", "priority_header")) == ["name", "values"]
