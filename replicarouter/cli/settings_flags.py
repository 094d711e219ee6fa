"""The flags of the settings, made from the settings tree, for every command that needs settings."""

import argparse
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, SecretStr

from replicarouter.settings import Loaded, Settings, load_settings
from replicarouter.settings.keys import Key, keys_of
from replicarouter.settings.scope import scope_note
from replicarouter.settings.values import MASK, byte_text


def value_text(name: str, value: object) -> str:
    """Write the value of a setting as people would; secrets masked, empty where there is none."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case int() if name.endswith("_bytes"):
            return byte_text(value)
        case float():
            return f"{value:g}"
        case SecretStr():
            return MASK
        case list():
            return ", ".join(value_text(name, item) for item in value)
        case dict() | BaseModel():
            items = dict(value).items()
            return ", ".join(f"{key}: {value_text(name, item)}" for key, item in items)
        case _:
            return str(value)


def default_text(key: Key) -> str:
    """Write the default of a setting; empty where there is none."""
    if key.info.is_required() or key.info.default_factory_takes_validated_data:
        return ""
    return value_text(key.name, key.info.get_default(call_default_factory=True))


def add_settings_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--config` and a flag for each setting that has one; their texts are the fields' own."""
    group = parser.add_argument_group(
        "settings",
        "Each is a key of the YAML file and a REPLICAROUTER_ variable too; "
        "flags come before variables, and variables before the file.",
    )
    group.add_argument("--config", metavar="FILE", type=Path, help="Read settings from this YAML file.")
    for key in keys_of(Settings):
        if (flag := key.flag) is None:
            continue
        default, note = default_text(key), scope_note(key.name)
        remarks = [f"default: {default}"] if default else []
        remarks += [note] if note else []
        text = f"{key.text} ({'; '.join(remarks)})" if remarks else key.text
        group.add_argument(
            flag.name,
            dest=key.name,
            metavar=flag.metavar,
            action="append" if key.structured else "store",
            help=text.replace("%", "%%"),
        )


def settings_from(arguments: argparse.Namespace, environ: Mapping[str, str]) -> Loaded:
    """Load the settings for parsed arguments; raises SettingsError."""
    given = vars(arguments)
    flags = {
        key.name: given[key.name]
        for key in keys_of(Settings)
        if key.flag is not None and given[key.name] is not None
    }
    return load_settings(flags=flags, environ=environ, config=arguments.config)
