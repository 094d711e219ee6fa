"""Whether there is an exporter: where one is wanted, and the extra is installed."""

import sys
import time

import pytest

from replicarouter.errors import SettingsError
from replicarouter.settings import TracingSettings
from replicarouter.tracing.opening import open_exporter
from tests.scene import a_fleet


def test_without_an_endpoint_there_is_none() -> None:
    assert open_exporter(TracingSettings(), a_fleet("a"), version="1", clock=time.monotonic) is None


def test_with_one_there_is() -> None:
    settings = TracingSettings(otlp_endpoint="http://127.0.0.1:9")
    exporter = open_exporter(settings, a_fleet("a"), version="1", clock=time.monotonic)
    assert exporter is not None
    exporter.close(1)


def test_a_missing_extra_is_said_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    for name in ("exporter", "spans"):
        monkeypatch.delitem(sys.modules, f"replicarouter.tracing.{name}", raising=False)
    settings = TracingSettings(otlp_endpoint="http://127.0.0.1:9")
    with pytest.raises(SettingsError, match=r"tracing\.otlp_endpoint.*'\.\[otel\]'.*'replicarouter\[otel\]'"):
        open_exporter(settings, a_fleet("a"), version="1", clock=time.monotonic)
