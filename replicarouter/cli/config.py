"""`replicarouter config`: the settings in effect, whether a file is good, and what can be set."""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from functools import reduce
from pathlib import Path

from replicarouter.cli.settings_flags import (
    add_settings_arguments,
    default_text,
    settings_from,
    value_text,
)
from replicarouter.settings import Loaded, ReplicaSettings, Settings, load_settings
from replicarouter.settings.keys import Key, keys_of
from replicarouter.settings.scope import scope_note
from replicarouter.tracing.opening import check_extra
from replicarouter.words import counted

NAME = "config"
HELP = "show, check and explain settings"

_WIDEST_VALUE = 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the four things that can be done with settings."""
    actions = parser.add_subparsers(metavar="ACTION", title="actions", required=True)
    show = actions.add_parser("show", help="the settings in effect, and where each comes from")
    show.add_argument("--json", action="store_true", help="Print JSON instead of a table.")
    add_settings_arguments(show)
    check = actions.add_parser("check", help="whether a file can be used")
    check.add_argument("file", metavar="FILE", type=Path, help="The YAML file.")
    schema = actions.add_parser("schema", help="the JSON schema of the YAML file")
    reference = actions.add_parser("reference", help="a table of all settings, in Markdown")
    for action, act in (
        (show, _show),
        (check, _check),
        (schema, _schema),
        (reference, _reference),
    ):
        action.set_defaults(parser=action, act=act)


def run(arguments: argparse.Namespace) -> int:
    """Do what the arguments say; raises SettingsError for settings that cannot be used."""
    sys.stdout.write(f"{arguments.act(arguments)}\n")
    return 0


def _show(arguments: argparse.Namespace) -> str:
    loaded = settings_from(arguments, os.environ)
    if arguments.json:
        settings = loaded.settings.model_dump(mode="json")
        return json.dumps({"settings": settings, "origins": dict(loaded.origins)}, indent=2)
    rows = list(_rows(loaded))
    key_width = max(len(key) for key, _, _ in rows)
    value_width = min(max(len(value) for _, value, _ in rows), _WIDEST_VALUE)
    return "\n".join(f"{key:{key_width}}  {value:{value_width}}  {origin}" for key, value, origin in rows)


def _rows(loaded: Loaded) -> Iterator[tuple[str, str, str]]:
    """Yield key, value and origin of every setting, each replica in a row of its own."""
    for key in keys_of(Settings):
        origin = loaded.origins[key.name]
        if key.name == "replicas":
            for index, replica in enumerate(loaded.settings.replicas):
                yield f"replicas[{index}]", _replica_text(replica), origin
        else:
            value: object = reduce(getattr, key.path, loaded.settings)
            yield key.name, value_text(key.name, value) or "none", origin


def _replica_text(replica: ReplicaSettings) -> str:
    facts = [
        f"{name} {value_text(name, value)}"
        for name, value in replica
        if name == "name" or (name != "url" and name in replica.model_fields_set)
    ]
    return f"{replica.url} ({', '.join(facts)})"


def _check(arguments: argparse.Namespace) -> str:
    loaded = load_settings(flags={}, environ={}, config=arguments.file)
    check_extra(loaded.settings.tracing)
    replicas = counted(len(loaded.settings.replicas), "replica")
    return f"{arguments.file}: OK, {replicas}, policy {loaded.settings.policy}"


def _schema(_: argparse.Namespace) -> str:
    return json.dumps(Settings.model_json_schema(), indent=2)


def _reference(_: argparse.Namespace) -> str:
    rows = ["| key | flag | default | meaning |", "|---|---|---|---|"]
    for key in keys_of(Settings):
        rows.append(_reference_row(key, key.name))
        if key.name == "replicas":
            rows += [_reference_row(field, f"replicas[].{field.name}") for field in keys_of(ReplicaSettings)]
    return "\n".join(rows)


def _reference_row(key: Key, name: str) -> str:
    flag = f"`{key.flag.name} {key.flag.metavar}`" if key.flag else ""
    default = default_text(key)
    note = scope_note(name)
    meaning = f"{key.text} ({note})" if note else key.text
    return f"| `{name}` | {flag} | {f'`{default}`' if default else ''} | {meaning} |"
