"""The keys of a settings tree: their names, variables and flags."""

from collections.abc import Iterator
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, TypeGuard, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from replicarouter.settings.errors import Location
from replicarouter.settings.values import Flag

PREFIX = "REPLICAROUTER_"
DELIMITER = "__"


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
        return PREFIX + DELIMITER.join(self.path).upper()

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


def _is_model(kind: Any) -> TypeGuard[type[BaseModel]]:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def section_of(tree: type[BaseModel], name: str) -> type[BaseModel] | None:
    """Give the section that a tree has under a name, or `None` for a setting and an unknown name."""
    info = tree.model_fields.get(name)
    return info.annotation if info and _is_model(info.annotation) else None


def keys_of(tree: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[Key]:
    """Yield the settings of a tree in its order."""
    for name, info in tree.model_fields.items():
        if section := section_of(tree, name):
            yield from keys_of(section, (*path, name))
        else:
            yield Key((*path, name), info)


def known_keys(tree: type[BaseModel], location: Location) -> list[str]:
    """List the keys of the section at a place of a tree."""
    section = tree
    names_an_entry = False
    for part in location:
        # Neither a position in a list nor the name of an entry of a mapping leads further down.
        if isinstance(part, int) or names_an_entry:
            names_an_entry = False
            continue
        kinds = list(_kinds(section.model_fields[part].annotation))
        items = [item for kind in kinds for item in get_args(kind) if get_origin(kind) in {list, dict}]
        section = next(kind for kind in [*kinds, *items] if _is_model(kind))
        names_an_entry = any(get_origin(kind) is dict for kind in kinds)
    return list(section.model_fields)
