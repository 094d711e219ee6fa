"""Filling the tree from flags, environment, YAML file and defaults, in this order."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from replicarouter.errors import SettingsError
from replicarouter.settings.api_keys import named_keys
from replicarouter.settings.errors import Location, explain
from replicarouter.settings.file import FileContent, read_settings_file
from replicarouter.settings.keys import keys_of, known_keys
from replicarouter.settings.scope import refused
from replicarouter.settings.sources import EnvironmentSource, FileSource, FlagSource
from replicarouter.settings.tree import SOURCES, Settings


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings and, for each dotted key, where its value came from.

    An origin is `default`, `flag --port`, `environment REPLICAROUTER_PORT` or the file's name.
    """

    settings: Settings
    origins: Mapping[str, str]


def load_settings(*, flags: Mapping[str, object], environ: Mapping[str, str], config: Path | None) -> Loaded:
    """Read the settings; the same key from two sources counts as the stronger source says.

    `flags` holds the flags given, by dotted key. Raises SettingsError with a line for each problem.
    """
    content = read_settings_file(config) if config else FileContent({}, {})
    file = FileSource(Settings, content, str(config or ""))
    sources = (FlagSource(Settings, flags), EnvironmentSource(Settings, environ), file)
    origins = {
        key.name: next((origin for one in sources if (origin := one.origin(key))), "default")
        for key in keys_of(Settings)
    }
    source = partial(_source, origins=origins, file=file)
    try:
        settings = Settings.model_validate({SOURCES: (file.misshapen(), *sources)})
    except ValidationError as error:
        problems = error.errors(include_url=False)
        told = explain(problems, source=source, known=partial(known_keys, Settings))
        raise SettingsError(told) from None
    if unavailable := refused(settings, source=source):
        raise SettingsError("\n".join(unavailable))
    try:
        named_keys(settings)
    except SettingsError as error:
        raise SettingsError(f"{error} ({source(('api_keys_file',))})") from None
    return Loaded(settings, origins)


def _source(location: Location, *, origins: Mapping[str, str], file: FileSource) -> str:
    """Say where the value at a place came from."""
    path = [part for part in location if isinstance(part, str)]
    names = (".".join(path[:length]) for length in range(len(path), 0, -1))
    origin = next((origins[name] for name in names if name in origins), file.name)
    return file.place(location) if origin == file.name else origin
