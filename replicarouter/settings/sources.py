"""What flags, environment and file say of the settings. The library's sources carry the values; added
here is where each came from, that unknown variables are refused, and that a value replaces another whole.
Flags come parsed: the library's command line makes a flag of every setting, with help and errors its own."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic_settings import BaseSettings, EnvSettingsSource, InitSettingsSource

from replicarouter.errors import SettingsError
from replicarouter.settings.errors import Location, unknown
from replicarouter.settings.file import FileContent
from replicarouter.settings.keys import DELIMITER, PREFIX, Key, keys_of, section_of

LAUNCH_VARIABLES = frozenset({"REPLICAROUTER_CMD", "REPLICAROUTER_ARGS"})
"""Variables with our prefix that say how a script starts the program; they are no settings."""

# Kubernetes and Docker put these into every container for a service called replicarouter, or
# replicarouter-something: https://kubernetes.io/docs/concepts/services-networking/service/
_SERVICE_VARIABLE = re.compile(
    r"REPLICAROUTER(_[A-Z0-9]+)*_(SERVICE_HOST|SERVICE_PORT(_\w+)?"
    r"|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_SERVICE_PORT = re.compile(r"REPLICAROUTER(_[A-Z0-9]+)*_PORT")
_SERVICE_ADDRESS = re.compile(r"(tcp|udp|sctp)://")


class FlagSource(InitSettingsSource):
    """The flags given, by dotted key."""

    def __init__(self, settings_cls: type[BaseSettings], flags: Mapping[str, object]) -> None:
        super().__init__(settings_cls, _nested(flags))
        self._flags = flags

    def origin(self, key: Key) -> str | None:
        """Name the flag that sets a key, if one does."""
        return f"flag {key.flag.name}" if key.flag and key.name in self._flags else None


class EnvironmentSource(EnvSettingsSource):
    """The variables with our prefix; raises SettingsError for unknown ones and for bad JSON."""

    def __init__(self, settings_cls: type[BaseSettings], environ: Mapping[str, str]) -> None:
        super().__init__(settings_cls)
        self._texts = dict(_texts_by_name(list(keys_of(settings_cls)), environ))
        self.env_vars = {PREFIX + name.replace(".", DELIMITER): text for name, text in self._texts.items()}

    def __call__(self) -> dict[str, Any]:
        """Give the values; a JSON null is one too, which the library takes for no value."""
        names = self.settings_cls.model_fields
        nulls = {name: None for name in names if self._texts.get(name, "").strip() == "null"}
        return {**nulls, **super().__call__()}

    def origin(self, key: Key) -> str | None:
        """Name the variable that sets a key, if one does."""
        return f"environment {key.variable}" if key.name in self._texts else None


class FileSource(InitSettingsSource):
    """The settings file."""

    def __init__(self, settings_cls: type[BaseSettings], content: FileContent, name: str) -> None:
        super().__init__(settings_cls, content.values)
        self.name = name
        self._content = content

    def __call__(self) -> dict[str, Any]:
        """Give the values of keys that no stronger source has: the library would merge mappings."""
        return _unsaid(self._content.values, self.current_state, self.settings_cls)

    def misshapen(self) -> InitSettingsSource:
        """Make a source of the sections that are no mappings here. Put before all others, it keeps
        them as they are, so that they are refused whatever the others say."""
        values = {
            name: value
            for name, value in self._content.values.items()
            if section_of(self.settings_cls, name) and not isinstance(value, dict)
        }
        return InitSettingsSource(self.settings_cls, values)

    def origin(self, key: Key) -> str | None:
        """Name the file if it sets a key."""
        section: object = self._content.values
        for part in key.path:
            if not isinstance(section, dict) or part not in section:
                return None
            section = section[part]
        return self.name

    def place(self, location: Location) -> str:
        """Name the file, and the line of the value at a place or of what holds it."""
        places = (location[:length] for length in range(len(location), 0, -1))
        line = next((self._content.lines[place] for place in places if place in self._content.lines), None)
        return self.name if line is None else f"{self.name} line {line}"


def _nested(values: Mapping[str, object]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for name, value in values.items():
        *sections, last = name.split(".")
        section = tree
        for part in sections:
            section = section.setdefault(part, {})
        section[last] = value
    return tree


def _unsaid(values: Mapping[str, Any], said: Mapping[str, Any], tree: type[BaseModel]) -> dict[str, Any]:
    rest = {}
    for name, value in values.items():
        section = section_of(tree, name)
        if name not in said:
            rest[name] = value
        elif section and isinstance(value, dict):
            rest[name] = _unsaid(value, said[name], section)
    return rest


def _texts_by_name(keys: list[Key], environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    by_variable = {key.variable: key for key in keys}
    problems = []
    for variable, text in environ.items():
        if not variable.startswith(PREFIX) or _is_foreign(variable, text):
            continue
        if (key := by_variable.get(variable)) is None:
            problems.append(unknown(variable, "environment", by_variable))
            continue
        try:
            yield key.name, _checked(key, text)
        except ValueError as error:
            problems.append(f"{key.name} (environment {variable}) is refused: give JSON; {error}")
    if problems:
        raise SettingsError("\n".join(problems))


def _is_foreign(variable: str, text: str) -> bool:
    """Tell whether a variable with our prefix was set by somebody else for another purpose."""
    if variable in LAUNCH_VARIABLES or _SERVICE_VARIABLE.fullmatch(variable):
        return True
    return bool(_SERVICE_PORT.fullmatch(variable) and _SERVICE_ADDRESS.match(text))


def _checked(key: Key, text: str) -> str:
    """Write a value as the library reads it; raises ValueError where that is JSON and `text` is not."""
    if not key.structured:
        return text
    if key.name == "replicas" and not text.lstrip().startswith(("[", "{")):
        return json.dumps([url.strip() for url in text.split(",") if url.strip()])
    json.loads(text)
    return text
