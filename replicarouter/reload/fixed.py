"""What cannot change while the router serves, and what did change."""

from collections.abc import Sequence

from pydantic import BaseModel

from replicarouter.settings import Settings
from replicarouter.settings.keys import keys_of

FIXED = (
    "host",
    "port",
    "admin.host",
    "admin.port",
    "connector",
    "timeouts.connect",
    "timeouts.client_head",
    "timeouts.client_write",
    "timeouts.client_keepalive",
    "max_header_bytes",
    "max_headers",
    "health",
    "eject",
    "scrape",
    "extra_paths",
    "workers",
    "log.format",
    "tracing.otlp_endpoint",
    "tracing.service_name",
)
"""Settings and sections that hold from start to end: they are built into listeners, connectors and loops."""

PAIR = ("tls.cert", "tls.key")
"""These may name other files, but a port does not begin or cease to speak TLS."""


def keep_fixed(running: Settings, wanted: Settings) -> tuple[Settings, list[str]]:
    """The wanted settings, but with the running values of what cannot change, and the names of those."""
    secured, secure = running.tls.cert is not None, wanted.tls.cert is not None
    fixed = FIXED if secured is secure else (*FIXED, *PAIR)
    kept = [name for name in changed_names(running, wanted) if _listed(name, fixed)]
    settings: BaseModel = wanted
    for name in kept:
        path = name.split(".")
        settings = _with(settings, path, _value(running, path))
    assert isinstance(settings, Settings)
    return settings, kept


def changed_names(before: Settings, after: Settings) -> list[str]:
    """The dotted names of the settings that differ."""
    paths = (key.path for key in keys_of(Settings))
    return [".".join(path) for path in paths if _value(before, path) != _value(after, path)]


def _listed(name: str, table: Sequence[str]) -> bool:
    return any(name == entry or name.startswith(f"{entry}.") for entry in table)


def _value(section: object, path: Sequence[str]) -> object:
    for part in path:
        assert isinstance(section, BaseModel)
        section = dict(section)[part]
    return section


def _with(section: BaseModel, path: Sequence[str], value: object) -> BaseModel:
    """A copy of a section with another value somewhere below it."""
    name, *rest = path
    if rest:
        inner = dict(section)[name]
        assert isinstance(inner, BaseModel)
        value = _with(inner, rest, value)
    return section.model_copy(update={name: value})
