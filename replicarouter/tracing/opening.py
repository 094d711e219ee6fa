"""Opens the exporter of spans where the settings ask for one."""

from typing import TYPE_CHECKING

from replicarouter.clock import Clock
from replicarouter.errors import SettingsError
from replicarouter.fleet.registry import Fleet
from replicarouter.settings import TracingSettings
from replicarouter.tracing.places import Places

if TYPE_CHECKING:
    from replicarouter.tracing.exporter import Exporter


def open_exporter(
    settings: TracingSettings, fleet: Fleet, *, version: str, clock: Clock
) -> "Exporter | None":
    """The exporter, or None when no spans are wanted. Raises `SettingsError` when the extra is missing."""
    if settings.otlp_endpoint is None:
        return None
    return _exporter(settings.otlp_endpoint)(settings, Places(fleet), version=version, clock=clock)


def check_extra(settings: TracingSettings) -> None:
    """Raises `SettingsError` when spans are wanted and the extra is missing."""
    if settings.otlp_endpoint is not None:
        _exporter(settings.otlp_endpoint)


def _exporter(endpoint: str) -> "type[Exporter]":
    try:
        from replicarouter.tracing.exporter import Exporter  # noqa: PLC0415
    except ImportError as error:
        raise SettingsError(
            f"tracing.otlp_endpoint: {endpoint!r} needs the extra `otel`, which is not installed "
            f"({error.name} is missing): pip install '.[otel]' in a checkout, or 'replicarouter[otel]'"
        ) from error
    return Exporter
