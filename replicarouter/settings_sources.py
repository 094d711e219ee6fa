"""The keys of a settings tree, and what flags, environment and file say of them."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from replicarouter.settings_errors import Location, SettingsError, unknown
from replicarouter.settings_file import read_settings_file
from replicarouter.settings_values import Flag

PREFIX = "REPLICAROUTER_"

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


@dataclass(frozen=True, slots=True)
class Key:
    """One setting: a leaf of the tree."""

    path: tuple[str, ...]
    info: FieldInfo

    @property
    def name(self) -> str:
        """Its dotted name, as in `admin.port`."""
        return ".".join(self.path)

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return PREFIX + "__".join(self.path).upper()

    @property
    def text(self) -> str:
        """What it means, in a sentence."""
        return self.info.description or ""

    @property
    def flag(self) -> Flag | None:
        """Its command-line flag, if it has one."""
        return next((mark for mark in self.info.metadata if isinstance(mark, Flag)), None)

    @property
    def structured(self) -> bool:
        """Whether its value is a list or a mapping, so that its variable holds JSON."""
        return any(
            get_origin(kind) in {list, dict} or _is_model(kind) for kind in _kinds(self.info.annotation)
        )


def _kinds(annotation: Any) -> Iterator[Any]:
    """Yield the types that an annotation allows."""
    if get_origin(annotation) is Annotated:
        yield from _kinds(get_args(annotation)[0])
    elif get_origin(annotation) in {Union, UnionType}:
        for choice in get_args(annotation):
            yield from _kinds(choice)
    else:
        yield annotation


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def keys_of(tree: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[Key]:
    """Yield the settings of a tree in its order."""
    for name, info in tree.model_fields.items():
        if _is_model(info.annotation):
            yield from keys_of(info.annotation, (*path, name))  # type: ignore[arg-type]
        else:
            yield Key((*path, name), info)


def known_keys(tree: type[BaseModel], location: Location) -> list[str]:
    """List the keys of the section at a place of a tree."""
    section = tree
    for part in location:
        if isinstance(part, str):
            kinds = list(_kinds(section.model_fields[part].annotation))
            items = [item for kind in kinds for item in get_args(kind) if get_origin(kind) is list]
            section = next(kind for kind in [*kinds, *items] if _is_model(kind))
    return list(section.model_fields)


@dataclass(slots=True)
class Gathered:
    """What the sources say, the stronger having overruled the weaker, not yet validated."""

    values: dict[str, Any]
    origins: dict[str, str]
    file: str = ""
    lines: Mapping[Location, int] = field(default_factory=dict)

    def set(self, path: tuple[str, ...], value: object, origin: str) -> None:
        """Put a value in its place."""
        section = self.values
        for part in path[:-1]:
            inner = section.setdefault(part, {})
            if not isinstance(inner, dict):  # stays, to be refused as what the file says
                return
            section = inner
        section[path[-1]] = value
        self.origins[".".join(path)] = origin

    def source(self, location: Location) -> str:
        """Say where the value at a place came from."""
        path = [part for part in location if isinstance(part, str)]
        names = (".".join(path[:length]) for length in range(len(path), 0, -1))
        origin = next((self.origins[name] for name in names if name in self.origins), self.file)
        if origin != self.file:
            return origin
        places = (location[:length] for length in range(len(location), 0, -1))
        line = next((self.lines[place] for place in places if place in self.lines), None)
        return self.file if line is None else f"{self.file} line {line}"


def gather(
    tree: type[BaseModel],
    *,
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    config: Path | None,
) -> Gathered:
    """Collect what is said of the settings of a tree: flags over environment over file.

    `flags` holds those given, by dotted key. Raises SettingsError for a file that cannot be read
    and for a variable that is unknown or not JSON where JSON is needed.
    """
    keys = {key.name: key for key in keys_of(tree)}
    gathered = Gathered({}, dict.fromkeys(keys, "default"))
    if config is not None:
        content = read_settings_file(config)
        gathered.values, gathered.lines, gathered.file = content.values, content.lines, str(config)
        for key in keys.values():
            if _present(content.values, key.path):
                gathered.origins[key.name] = gathered.file
    for key, value in _from_environment(list(keys.values()), environ):
        gathered.set(key.path, value, f"environment {key.variable}")
    for name, value in flags.items():
        flag = keys[name].flag
        gathered.set(keys[name].path, value, f"flag {flag.name}" if flag else "flag")
    return gathered


def _present(values: Mapping[str, Any], path: tuple[str, ...]) -> bool:
    section: Any = values
    for part in path:
        if not isinstance(section, dict) or part not in section:
            return False
        section = section[part]
    return True


def _from_environment(keys: list[Key], environ: Mapping[str, str]) -> Iterator[tuple[Key, object]]:
    by_variable = {key.variable: key for key in keys}
    problems = []
    found: list[tuple[Key, object]] = []
    for variable, text in environ.items():
        if not variable.startswith(PREFIX) or _is_foreign(variable, text):
            continue
        if (key := by_variable.get(variable)) is None:
            problems.append(unknown(variable, "environment", by_variable))
            continue
        try:
            found.append((key, _decode(key, text)))
        except ValueError as error:
            problems.append(f"{key.name} (environment {variable}) is refused: give JSON; {error}")
    if problems:
        raise SettingsError("\n".join(problems))
    yield from found


def _is_foreign(variable: str, text: str) -> bool:
    """Tell whether a variable with our prefix was set by somebody else for another purpose."""
    if variable in LAUNCH_VARIABLES or _SERVICE_VARIABLE.fullmatch(variable):
        return True
    return bool(_SERVICE_PORT.fullmatch(variable) and _SERVICE_ADDRESS.match(text))


def _decode(key: Key, text: str) -> object:
    if not key.structured:
        return text
    if key.name == "replicas" and not text.lstrip().startswith(("[", "{")):
        return [url.strip() for url in text.split(",") if url.strip()]
    return json.loads(text)
