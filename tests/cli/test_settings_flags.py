"""Flags made from the settings tree."""

import argparse
from pathlib import Path

import pytest
from pydantic import SecretStr

from replicarouter.cli.settings_flags import (
    add_settings_arguments,
    default_text,
    settings_from,
    value_text,
)
from replicarouter.settings import Settings, SettingsError
from replicarouter.settings.keys import Key, keys_of
from replicarouter.settings.sections import PriorityHeader

URL = "http://127.0.0.1:8001"
WITH_FLAGS = [key for key in keys_of(Settings) if key.flag]

VALUES = {
    "host": ("::1", "::1"),
    "port": ("9000", 9000),
    "admin.host": ("localhost", "localhost"),
    "admin.port": ("0", 0),
    "replicas": ("http://engine:1", None),
    "policy": ("random", "random"),
    "connector.limit": ("2048", 2048),
    "timeouts.connect": ("1.5", 1.5),
    "admission.max_outstanding_per_replica": ("0", 0),
    "admission.max_queued": ("7", 7),
    "admission.queue_timeout": ("8", 8.0),
    "max_body_bytes": ("1 MiB", 2**20),
    "health.interval": ("3", 3.0),
    "scrape.interval": ("0.5", 0.5),
    "workers": ("1", 1),
    "log.level": ("DEBUG", "debug"),
    "log.format": ("json", "json"),
}


@pytest.fixture
def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    add_settings_arguments(parser)
    return parser


@pytest.mark.parametrize("key", WITH_FLAGS, ids=lambda key: key.name)
def test_every_flag_sets_its_setting(key: Key, parser: argparse.ArgumentParser) -> None:
    assert key.flag is not None
    given, expected = VALUES[key.name]
    words = [] if key.name == "replicas" else ["--replica", URL]
    loaded = settings_from(parser.parse_args([*words, key.flag.name, given]), {})
    value: object = loaded.settings
    for part in key.path:
        value = getattr(value, part)
    if key.name == "replicas":
        assert [replica.url for replica in loaded.settings.replicas] == [given]
    else:
        assert value == expected
    assert loaded.origins[key.name] == f"flag {key.flag.name}"


def test_published_flags_exist() -> None:
    published = """--host --port --admin-host --admin-port --replica --policy --connector-limit
        --connect-timeout --max-outstanding --max-queued --queue-timeout --max-body-bytes
        --health-interval --scrape-interval --workers --log-level --log-format"""
    assert {key.flag.name for key in WITH_FLAGS if key.flag} == set(published.split())


def test_replica_flag_repeats(parser: argparse.ArgumentParser) -> None:
    arguments = parser.parse_args(["--replica", "http://a:1", "--replica", "http://b:2"])
    replicas = settings_from(arguments, {}).settings.replicas
    assert [replica.name for replica in replicas] == ["a:1", "b:2"]


def test_flags_not_given_leave_other_sources_alone(parser: argparse.ArgumentParser, tmp_path: Path) -> None:
    file = tmp_path / "router.yaml"
    file.write_text(f"port: 9001\nreplicas: [{URL}]\n", encoding="utf-8")
    arguments = parser.parse_args(["--config", str(file)])
    loaded = settings_from(arguments, {"REPLICAROUTER_HOST": "::1"})
    assert (loaded.settings.port, loaded.settings.host) == (9001, "::1")


@pytest.mark.parametrize("key", WITH_FLAGS, ids=lambda key: key.name)
def test_help_has_the_text_and_the_default_of_the_field(key: Key, parser: argparse.ArgumentParser) -> None:
    assert key.flag is not None
    told = " ".join(parser.format_help().replace("-\n", "-").split())
    start = told.index(f"{key.flag.name} {key.flag.metavar} {key.text.split()[0]}")
    entry = told[start : start + 400].replace(" ", "")
    assert key.text.replace(" ", "") in entry
    if default := default_text(key):
        assert f"(default:{default.replace(' ', '')}" in entry


def test_bad_value_names_the_flag(parser: argparse.ArgumentParser) -> None:
    with pytest.raises(SettingsError, match=r"connector\.limit: '-1' \(flag --connector-limit\)"):
        settings_from(parser.parse_args(["--replica", URL, "--connector-limit", "-1"]), {})


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("port", 8080, "8080"),
        ("max_body_bytes", 2**28, "256 MiB"),
        ("expose_replica", True, "true"),
        ("retry.resend", False, "false"),
        ("timeouts.connect", 5.0, "5"),
        ("retry.budget", 0.2, "0.2"),
        ("admin.token", SecretStr("sk-1"), "***"),
        ("admin.token", None, ""),
        ("api_keys", [SecretStr("sk-1"), SecretStr("sk-2")], "***, ***"),
        ("aliases", {"a": "b", "c": "d"}, "a: b, c: d"),
        ("aliases", {}, ""),
        (
            "admission.priority_header",
            PriorityHeader(name="X-P", values=["high", "low"]),
            "name: X-P, values: high, low",
        ),
    ],
)
def test_value_is_written_as_people_do(name: str, value: object, text: str) -> None:
    assert value_text(name, value) == text
