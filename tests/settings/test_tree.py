"""The root of the tree: defaults, and what does not go together across sections."""

from functools import reduce
from typing import Any

import pytest
from pydantic import ValidationError

from replicarouter.settings import POLICY_NAMES, Loaded, Settings, SettingsError, load_settings
from replicarouter.settings.keys import Key, keys_of

URL = "http://127.0.0.1:8001"
KEYS = list(keys_of(Settings))


def load_flags(**flags: object) -> Loaded:
    return load_settings(flags={"replicas": [URL], **flags}, environ={}, config=None)


DEFAULTS = {
    "host": "127.0.0.1",
    "port": 8080,
    "admin.host": "127.0.0.1",
    "admin.port": 8081,
    "admin.token": None,
    "admin.allowed_urls": None,
    "policy": "least-outstanding",
    "policy_options.stick_to_api_key": False,
    "policy_options.load_factor": 1.25,
    "policy_options.prefix_index_bytes": 268_435_456,
    "policy_options.shadow": None,
    "policy_options.decisions_per_second": 50,
    "pools": {},
    "connector.limit": 0,
    "connector.limit_per_replica": 0,
    "connector.keepalive": 3.0,
    "timeouts.connect": 5,
    "timeouts.response_head": 0,
    "timeouts.idle": 0,
    "timeouts.total": 0,
    "timeouts.client_head": 10,
    "timeouts.client_body": 60,
    "timeouts.client_write": 120,
    "timeouts.client_keepalive": 75,
    "admission.max_outstanding_per_replica": 0,
    "admission.max_queued": 10000,
    "admission.queue_timeout": 60,
    "admission.shares": {},
    "admission.priority_header": None,
    "max_body_bytes": 268_435_456,
    "max_buffered_bytes": 1_073_741_824,
    "max_header_bytes": 65_536,
    "max_headers": 256,
    "health.interval": 2,
    "health.timeout": 2,
    "health.unhealthy_after": 2,
    "health.healthy_after": 1,
    "health.stall_after": 30,
    "health.stall_end": 120,
    "health.slow_start": 10,
    "scrape.interval": 1,
    "eject.consecutive_failures": 5,
    "eject.base_seconds": 3,
    "eject.max_seconds": 60,
    "eject.max_share": 0.5,
    "retry.max_attempts": 3,
    "retry.budget": 0.2,
    "retry.budget_floor": 10,
    "retry.stale_window": 0.05,
    "retry.resend": False,
    "api_keys": None,
    "api_keys_file": None,
    "trusted_proxies": [],
    "expose_replica": True,
    "extra_paths": [],
    "sse_keepalive": 0,
    "aliases": {},
    "tls.cert": None,
    "tls.key": None,
    "tls.replica_ca": None,
    "cors.allow_origins": [],
    "workers": 1,
    "drain.delay": 0,
    "drain.timeout": 600,
    "log.level": "info",
    "log.format": "auto",
    "log.sample": 1.0,
    "tracing.start": True,
    "tracing.sample_ratio": 1.0,
    "tracing.otlp_endpoint": None,
    "tracing.service_name": "replicarouter",
}


def test_defaults_are_the_published_ones() -> None:
    settings = load_flags().settings
    assert {name: reduce(getattr, name.split("."), settings) for name in DEFAULTS} == DEFAULTS
    assert settings.policy_options.session_headers[0] == "X-Session-Id"


def test_every_setting_is_published() -> None:
    names = {key.name for key in KEYS}
    assert names == DEFAULTS.keys() | {"replicas", "policy_options.session_headers"}


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_every_setting_has_a_text_of_one_sentence(key: Key) -> None:
    assert key.text.endswith(".")
    assert not key.text.rstrip(".").endswith(" ")
    assert "\n" not in key.text


def test_configurable_policies_are_those_of_the_registry() -> None:
    from replicarouter.policies import POLICIES  # noqa: PLC0415

    assert tuple(POLICIES) == POLICY_NAMES


@pytest.mark.parametrize(
    ("host", "admin_host", "clash"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("0.0.0.0", "127.0.0.1", True),
        ("::", "::1", True),
        ("127.0.0.1", "127.0.0.2", False),
    ],
)
def test_one_port_for_two_purposes_is_refused(host: str, admin_host: str, clash: bool) -> None:
    flags = {"host": host, "admin.host": admin_host, "port": "9000", "admin.port": "9000"}
    if clash:
        with pytest.raises(SettingsError, match=r"admin\.port: 9000 \(flag --admin-port\)"):
            load_flags(**flags)
    else:
        assert load_flags(**flags).settings.admin.port == 9000


@pytest.mark.parametrize("other", ["http://A:1", "http://a:1/", {"url": "http://a:1", "name": "b"}])
def test_replica_given_twice_is_refused(other: object) -> None:
    with pytest.raises(SettingsError, match=r"replicas\[2\]\.url: .*replicas\[0\] has this URL too"):
        load_flags(replicas=["http://a:1", "http://c:1", other])


def test_default_port_makes_no_difference_between_urls() -> None:
    with pytest.raises(SettingsError, match=r"replicas\[1\]\.url"):
        load_flags(replicas=["http://a", "http://a:80"])


def test_replica_name_given_twice_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"replicas\[1\]\.name: 'a:1' .*name of its own"):
        load_flags(replicas=["http://a:1/x", "http://a:1/y"])


def test_settings_do_not_change_once_read() -> None:
    settings = load_flags().settings
    with pytest.raises(ValueError, match="frozen"):
        settings.port = 1  # type: ignore[misc]


def test_settings_made_in_code_are_what_the_code_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPLICAROUTER_PORT", "9000")
    monkeypatch.setenv("REPLICAROUTER_ADMIN__PORT", "9001")
    settings = Settings.model_validate({"replicas": [URL], "log": {"level": "debug"}})
    assert (settings.port, settings.admin.port, settings.log.level) == (8080, 8081, "debug")


@pytest.mark.parametrize("values", [{"prot": 1}, {"PORT": 1}, {"admin": {"prot": 1}}])
def test_unknown_key_made_in_code_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate({"replicas": [URL], **values})
    types = {problem["type"] for problem in caught.value.errors()}
    # A default that looks at other settings is not made while one of them is wrong.
    assert types - {"default_factory_not_called"} == {"extra_forbidden"}
