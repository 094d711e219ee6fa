"""Settings of the tree whose feature this version does not have. The table gets shorter as features
arrive; a name may be a setting, a section, or one field of the replicas."""

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pydantic import BaseModel

from replicarouter.settings.errors import Location, dotted, shown
from replicarouter.settings.values import Section

if TYPE_CHECKING:
    from replicarouter.settings import ReplicaSettings, Settings

REFUSED = ("replicas[].role",)
"""Without these, what was asked for would silently be missing: protection, or another meaning."""


def refused(
    settings: "Settings | ReplicaSettings", *, source: Callable[[Location], str], at: Location = ()
) -> list[str]:
    """Write a line for each setting that asks for what this version cannot do.

    `source` says where the value at a place came from, `at` where `settings` are in the tree.
    """
    return [
        f"{dotted(location)}: {shown(value)} ({source(location)}) is refused: "
        "this version does not offer it yet; leave it out"
        for location, value in _changed(settings, at)
        if value and _listed(_name(location), REFUSED)
    ]


def scope_note(name: str) -> str:
    """Say what this version makes of a setting, if it has not its feature; else nothing.

    `name` is a dotted key, that of a replica's field with `replicas[]` in front.
    """
    return "in this version only the default" if _listed(name, REFUSED) else ""


def _name(location: Location) -> str:
    return re.sub(r"\[\d+\]", "[]", dotted(location))


def _listed(name: str, table: tuple[str, ...]) -> bool:
    return any(name == entry or name.startswith(f"{entry}.") for entry in table)


def _changed(section: BaseModel, location: Location) -> Iterator[tuple[Location, object]]:
    """Yield the settings that are set to something else than their default."""
    for name, value in section:
        place = (*location, name)
        if isinstance(value, Section):
            yield from _changed(value, place)
        elif name == "replicas":
            for index, replica in enumerate(value):
                yield from _changed(replica, (*place, index))
        elif name in section.model_fields_set and value != _default(section, name):
            yield place, value


def _default(section: BaseModel, name: str) -> object:
    info = type(section).model_fields[name]
    if info.is_required() or info.default_factory_takes_validated_data:
        return None
    return info.get_default(call_default_factory=True)
