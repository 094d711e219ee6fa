"""The keys of the tree."""

from replicarouter.settings import Settings
from replicarouter.settings.keys import keys_of, known_keys, section_of
from replicarouter.settings.sections import AdminSettings

KEYS = {key.name: key for key in keys_of(Settings)}


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
        "pools",
        "admission.shares",
        "admission.priority_header",
        "api_keys",
        "trusted_proxies",
        "extra_paths",
        "aliases",
        "cors.allow_origins",
    }


def test_known_keys_are_those_of_the_section_at_a_place() -> None:
    assert known_keys(Settings, ())[:3] == ["host", "port", "admin"]
    assert known_keys(Settings, ("scrape",)) == ["interval"]
    assert known_keys(Settings, ("replicas", 3))[:2] == ["url", "name"]
    assert known_keys(Settings, ("admission", "priority_header")) == ["name", "values"]
    for model in ("m1", "policy", "host"):
        assert known_keys(Settings, ("pools", model)) == ["policy"]


def test_section_is_told_from_a_setting_and_an_unknown_name() -> None:
    assert section_of(Settings, "admin") is AdminSettings
    assert section_of(Settings, "port") is None
    assert section_of(Settings, "replicas") is None
    assert section_of(Settings, "prot") is None
    assert section_of(AdminSettings, "token") is None
