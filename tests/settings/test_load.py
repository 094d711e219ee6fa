"""Filling the tree: which source counts, where a value comes from, and how bad ones are told."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from replicarouter.settings import POLICY_NAMES, Loaded, Settings, SettingsError, load_settings
from replicarouter.settings.keys import Key, keys_of

URL = "http://127.0.0.1:8001"
KEYS = list(keys_of(Settings))


def load(
    text: str = "",
    *,
    tmp_path: Path,
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Loaded:
    file = tmp_path / "router.yaml"
    file.write_text(text, encoding="utf-8")
    return load_settings(flags=flags or {}, environ=environ or {}, config=file)


def load_flags(**flags: object) -> Loaded:
    return load_settings(flags={"replicas": [URL], **flags}, environ={}, config=None)


def message(text: str, tmp_path: Path) -> str:
    with pytest.raises(SettingsError) as caught:
        load(text, tmp_path=tmp_path)
    return str(caught.value)


SOURCES = ["default", "file", "environment", "flag"]


@pytest.mark.parametrize("strongest", SOURCES)
def test_flag_beats_environment_beats_file_beats_default(strongest: str, tmp_path: Path) -> None:
    present = SOURCES[: SOURCES.index(strongest) + 1]
    loaded = load(
        "port: 1001" if "file" in present else "",
        environ={"REPLICAROUTER_PORT": "1002"} if "environment" in present else {},
        flags={"replicas": [URL], **({"port": "1003"} if "flag" in present else {})},
        tmp_path=tmp_path,
    )
    expected = {
        "default": (8080, "default"),
        "file": (1001, str(tmp_path / "router.yaml")),
        "environment": (1002, "environment REPLICAROUTER_PORT"),
        "flag": (1003, "flag --port"),
    }
    assert (loaded.settings.port, loaded.origins["port"]) == expected[strongest]


def test_sources_meet_inside_one_section(tmp_path: Path) -> None:
    loaded = load(
        "timeouts: {connect: 1, idle: 2, total: 3}",
        environ={"REPLICAROUTER_TIMEOUTS__IDLE": "4"},
        flags={"replicas": [URL], "timeouts.connect": "5"},
        tmp_path=tmp_path,
    )
    timeouts = loaded.settings.timeouts
    assert (timeouts.connect, timeouts.idle, timeouts.total, timeouts.client_body) == (5, 4, 3, 60)
    assert loaded.origins["timeouts.connect"] == "flag --connect-timeout"
    assert loaded.origins["timeouts.idle"] == "environment REPLICAROUTER_TIMEOUTS__IDLE"
    assert loaded.origins["timeouts.total"].endswith("router.yaml")
    assert loaded.origins["timeouts.client_body"] == "default"


def test_mapping_of_a_stronger_source_replaces_the_other(tmp_path: Path) -> None:
    loaded = load(
        f"replicas: [{URL}]\nadmission: {{shares: {{file: 1}}, max_queued: 5}}",
        environ={"REPLICAROUTER_ADMISSION__SHARES": '{"variable": 2}'},
        tmp_path=tmp_path,
    )
    assert loaded.settings.admission.shares == {"variable": 2}
    assert loaded.settings.admission.max_queued == 5
    assert loaded.origins["admission.shares"] == "environment REPLICAROUTER_ADMISSION__SHARES"


@pytest.mark.parametrize(
    ("flags", "environ"),
    [({"admin.port": "1"}, {}), ({}, {"REPLICAROUTER_ADMIN__PORT": "1"})],
    ids=["flag", "environment"],
)
def test_section_that_is_no_mapping_is_told_whatever_stronger_sources_say(
    flags: Mapping[str, object], environ: Mapping[str, str], tmp_path: Path
) -> None:
    with pytest.raises(SettingsError) as caught:
        load(f"admin: 5\nport: x\nreplicas: [{URL}]", flags=flags, environ=environ, tmp_path=tmp_path)
    port, admin = sorted(str(caught.value).splitlines(), reverse=True)
    assert port.startswith("port: 'x' (")
    assert "line 1): give a mapping with the keys host, port, token" in admin


@pytest.mark.parametrize("name", ["Port", "PORT", "sources", "_env_file", "self"])
def test_key_of_the_file_is_taken_as_it_is_written(name: str, tmp_path: Path) -> None:
    assert f"{name} ({tmp_path}/router.yaml line 1): unknown" in message(
        f"{name}: 1\nreplicas: [{URL}]", tmp_path
    )


def test_equal_settings_from_other_sources_are_equal(tmp_path: Path) -> None:
    text = f"replicas: [{URL}]\nport: 9001"
    assert load(text, tmp_path=tmp_path).settings == load_flags(port="9001").settings


def test_replicas_of_a_stronger_source_replace_the_others(tmp_path: Path) -> None:
    loaded = load(
        "replicas: ['http://file:1', 'http://file:2']",
        flags={"replicas": ["http://flag:1"]},
        tmp_path=tmp_path,
    )
    assert [replica.url for replica in loaded.settings.replicas] == ["http://flag:1"]


def test_every_setting_has_an_origin() -> None:
    assert load_flags().origins.keys() == {key.name for key in KEYS}


def test_value_of_a_merge_key_comes_from_the_file(tmp_path: Path) -> None:
    loaded = load(f"replicas: [{URL}]\nlog: {{<<: {{level: debug}}}}", tmp_path=tmp_path)
    assert loaded.settings.log.level == "debug"
    assert loaded.origins["log.level"].endswith("router.yaml")


def test_key_with_nothing_after_it_counts_as_not_set(tmp_path: Path) -> None:
    loaded = load(f"port:\nadmin:\nreplicas:\n  - url: {URL}\n    name:\n", tmp_path=tmp_path)
    assert (loaded.settings.port, loaded.settings.admin.port) == (8080, 8081)
    assert loaded.settings.replicas[0].name == "127.0.0.1:8001"
    assert loaded.origins["port"] == "default"


def test_no_replica_at_all_is_refused() -> None:
    with pytest.raises(SettingsError, match="give at least one --replica URL or a replicas: list"):
        load_settings(flags={}, environ={}, config=None)


@pytest.mark.parametrize("text", ["", "# nothing\n", "replicas:\n", "replicas: []\n"])
def test_file_without_replicas_is_refused(text: str, tmp_path: Path) -> None:
    assert "give at least one --replica URL" in message(text, tmp_path)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("port: 70000", ["port: 70000", "router.yaml line 1", "from 0 to 65535"]),
        ("\nport: -1", ["port: -1", "router.yaml line 2"]),
        ("port: yes", ["port: true", "a whole number"]),
        ("port: 80.5", ["port: 80.5"]),
        ("host: http://x", ["host: 'http://x'", "a host name or an address"]),
        ("policy: fastest", ["policy: 'fastest'", *POLICY_NAMES]),
        ("pools: {m1: {policy: fastest}}", ["pools.m1.policy: 'fastest'", "line 1", *POLICY_NAMES]),
        ("pools: {m1: {polcy: random}}", ["pools.m1.polcy", "did you mean policy?"]),
        ("pools: {m1: random}", ["pools.m1", "give a mapping with the keys policy"]),
        ("pools: [m1]", ["pools: a list", "a mapping of model names"]),
        ("pools: {a: {policy: random}}\naliases: {a: m1}", ["pools.a: 'a'", "name the model, m1"]),
        ("policy_options: {shadow: best}", ["policy_options.shadow: 'best'", *POLICY_NAMES]),
        ("connector: {limit: -5}", ["connector.limit: -5", "0 or more"]),
        ("timeouts: {idle: .inf}", ["timeouts.idle: inf", "seconds, 0 or more"]),
        ("timeouts: {idle: .nan}", ["timeouts.idle: nan"]),
        ("timeouts: {idle: 5s}", ["timeouts.idle: '5s'", "a number of seconds"]),
        ("health: {interval: 0}", ["health.interval: 0", "0.01 or more"]),
        ("eject: {max_share: 1.5}", ["eject.max_share: 1.5", "from 0 to 1"]),
        ("retry: {resend: perhaps}", ["retry.resend: 'perhaps'", "true or false"]),
        ("max_body_bytes: 1 MB", ["max_body_bytes: '1 MB'", "256 MiB"]),
        ("extra_paths: [v1/x]", ["extra_paths[0]: 'v1/x'", "begins with /"]),
        ("extra_paths: /v1/x", ["extra_paths: '/v1/x'", "a list of paths"]),
        ("trusted_proxies: [10.0.0.1/8]", ["trusted_proxies[0]", "10.0.0.0/8"]),
        ("aliases: {small: 1}", ["aliases.small: 1", "quotes"]),
        ("log: {level: loud}", ["log.level: 'loud'", "debug, info, warning"]),
        ("log: chatty", ["log", "give a mapping with the keys level, format"]),
        ("polcy: random", ["polcy", "router.yaml line 1", "did you mean policy?"]),
        ("admin: {prot: 1}", ["admin.prot", "did you mean port?"]),
        ("scrape: {zzz: 1}", ["scrape.zzz", "known are interval"]),
        (
            "admission: {priority_header: {name: 'a b', values: []}}",
            ["admission.priority_header.name: 'a b'", "admission.priority_header.values"],
        ),
        ("admission: {priority_header: {name: X-P}}", ["admission.priority_header.values", "missing"]),
        ("admission: {shares: {gold: 0}}", ["admission.shares.gold: 0", "above 0"]),
    ],
)
def test_bad_value_is_named_with_its_place_and_what_is_accepted(
    text: str, parts: Sequence[str], tmp_path: Path
) -> None:
    told = message(f"{text}\nreplicas: [{URL}]", tmp_path)
    assert [part for part in parts if part not in told] == []


def test_bad_flag_is_told_like_a_bad_file() -> None:
    with pytest.raises(SettingsError) as caught:
        load_flags(port="many")
    assert str(caught.value) == (
        "port: 'many' (flag --port) is refused: give a port, a whole number from 0 to 65535"
    )


def test_all_problems_are_told_at_once_a_line_each(tmp_path: Path) -> None:
    told = message("port: x\nhost: ''\nreplicas: [5]", tmp_path)
    assert [line.split(":")[0] for line in told.splitlines()] == ["host", "port", "replicas[0]"]


@pytest.mark.parametrize("value", ["[1, 2]", "{a: 1, b: 2}", r'"\a b"', "5", "[]", "{}"])
@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_whatever_a_value_is_it_is_accepted_or_named(key: Key, value: str, tmp_path: Path) -> None:
    text = "".join(f"{'  ' * depth}{part}:\n" for depth, part in enumerate(key.path)).rstrip()
    flags = {} if key.name == "replicas" else {"replicas": [URL]}
    try:
        loaded = load(f"{text} {value}", flags=flags, tmp_path=tmp_path)
        told = f"{key.name} is as in {loaded.origins[key.name]}"
    except SettingsError as error:
        told = str(error)
    assert told.startswith(key.name)
    assert "router.yaml" in told
    assert "Input should" not in told


SECRET = "sk-very-secret"


@pytest.mark.parametrize(
    "text",
    [
        f"admin: {{token: '{SECRET} x'}}",
        f"admin: {{token: [{SECRET}]}}",
        f"admin: {SECRET}",
        f"api_keys: {SECRET}",
        f"api_keys: ['{SECRET} x']",
        f"api_keys: {{alice: '{SECRET} x'}}",
        f"api_keys: {{'{SECRET} x': alice}}",
        f"api_keys: {{alice: {SECRET}, bob: {SECRET}}}\nreplicas: [{URL}]",
        f"api_keys: [{SECRET}]\napi_keys_file: nowhere\nreplicas: [{URL}]",
        f"token: {SECRET}",
        f"replicas: [{{url: '{URL}', api_key: '{SECRET} x'}}]",
        f"replicas: [{{url: '{URL}', apikey: {SECRET}}}]",
        f"replicas: {{url: '{URL}', api_key: {SECRET}}}",
        f"replicas: ['http://user:{SECRET}@127.0.0.1:8001']",
        f"replicas: ['http://user:a/{SECRET}@127.0.0.1:8001']",
        f"replicas: ['user:{SECRET}@127.0.0.1:8001']",
        f"replicas: ['{URL}?key={SECRET}']",
    ],
)
def test_secret_is_never_told(text: str, tmp_path: Path) -> None:
    assert SECRET not in message(text, tmp_path)


@pytest.mark.parametrize("environ", ["API_KEYS", "REPLICAS", "ADMISSION__SHARES"])
def test_secret_in_broken_json_is_never_told(environ: str) -> None:
    variables = {f"REPLICAROUTER_{environ}": f'["{SECRET}'}
    with pytest.raises(SettingsError) as caught:
        load_settings(flags={}, environ=variables, config=None)
    assert SECRET not in str(caught.value)


def test_settings_do_not_show_secrets(tmp_path: Path) -> None:
    text = f"admin: {{token: {SECRET}}}\nreplicas: [{{url: '{URL}', api_key: {SECRET}}}]"
    loaded = load(text, tmp_path=tmp_path)
    assert SECRET not in repr(loaded)
    key = loaded.settings.replicas[0].api_key
    assert key is not None
    assert key.get_secret_value() == SECRET


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "router.example"])
def test_open_admin_port_needs_a_token(host: str) -> None:
    with pytest.raises(SettingsError, match=r"admin\.host: .* admin\.token"):
        load_flags(**{"admin.host": host})
    assert load_flags(**{"admin.host": host, "admin.port": "0"}).settings.admin.host == host


def test_open_admin_port_with_a_token_is_accepted(tmp_path: Path) -> None:
    text = f"admin: {{host: 192.0.2.1, token: {SECRET}}}\nreplicas: [{URL}]"
    assert load(text, tmp_path=tmp_path).settings.admin.host == "192.0.2.1"


def test_empty_token_is_no_token(tmp_path: Path) -> None:
    told = message(f"admin: {{host: 192.0.2.1, token: ''}}\nreplicas: [{URL}]", tmp_path)
    assert "admin.token: ***" in told


def test_setting_of_a_later_version_is_refused_with_its_origin(tmp_path: Path) -> None:
    told = message(f"port: 0\nreplicas: [{{url: '{URL}', role: decode}}]", tmp_path)
    assert "line 2) is refused: this version does not offer it yet; leave it out" in told
    assert "replicas[0].role: 'decode'" in told


def test_missing_file_is_told() -> None:
    with pytest.raises(SettingsError, match=r"nowhere\.yaml: no such file"):
        load_settings(flags={"replicas": [URL]}, environ={}, config=Path("nowhere.yaml"))
