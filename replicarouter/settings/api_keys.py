"""The keys that callers may show: named in the settings or in a file of their own."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field, SecretStr, WithJsonSchema
from pydantic_core import PydanticCustomError

from replicarouter.errors import SettingsError
from replicarouter.settings.values import MASK, Secret, accepts_items, refusal

if TYPE_CHECKING:
    from replicarouter.settings import Settings

_KEY = re.compile(r"[!-~]+")
_NAME = re.compile(r"[A-Za-z0-9._:@/+-]{1,128}")
_NAME_ACCEPTED = "a name of 1 to 128 letters, digits and . _ : @ / + -"
_KEY_ACCEPTED = "visible ASCII text without spaces"


@dataclass(frozen=True, slots=True)
class NamedKey:
    """One key, and the name by which its caller is known in logs and in the order of the queue."""

    name: str
    secret: SecretStr


def name_of(key: str) -> str:
    """A name for a key that was given none: always the same one, and no way back from it."""
    digest = hashlib.blake2b(key.encode(), digest_size=6, person=b"replicarouter")
    return f"key-{digest.hexdigest()}"


def _named(value: Any) -> Any:
    """Make a mapping of names to keys out of a list of keys."""
    if isinstance(value, dict) and not all(_NAME.fullmatch(str(name)) for name in value):
        # The name may be a key that was put on the wrong side, so it is not shown.
        raise refusal(f"for each key {_NAME_ACCEPTED}", shown=MASK)
    if not isinstance(value, list):
        return value
    named = {}
    for index, key in enumerate(value):
        text = key.get_secret_value() if isinstance(key, SecretStr) else key
        if not isinstance(text, str) or not _KEY.fullmatch(text):
            context = {"accepted": _KEY_ACCEPTED, "shown": MASK, "at": (index,)}
            raise PydanticCustomError("refused", "{accepted}", context)
        named[name_of(text)] = text
    return named


_KEYS_SCHEMA = {
    "anyOf": [
        {"type": "array", "minItems": 1, "items": {"type": "string"}},
        {"type": "object", "minProperties": 1, "additionalProperties": {"type": "string"}},
    ]
}

ApiKeys = Annotated[
    dict[str, Secret],
    Field(min_length=1),
    accepts_items("a list of at least one key, or a mapping of names to keys", secret=True),
    BeforeValidator(_named),
    WithJsonSchema(_KEYS_SCHEMA),
]


def named_keys(settings: "Settings") -> tuple[NamedKey, ...]:
    """All keys that open the door, those of the file with them; none when no key is needed.

    Reads the file anew at each call. Raises `SettingsError` naming the file and the line, never a key.
    """
    keys = [NamedKey(name, secret) for name, secret in (settings.api_keys or {}).items()]
    places = ["api_keys"] * len(keys)
    if settings.api_keys_file is not None:
        for number, key in _read(settings.api_keys_file):
            keys.append(key)
            places.append(f"api_keys_file: {str(settings.api_keys_file)!r} line {number}")
    first: dict[str, int] = {}
    for index, key in enumerate(keys):
        earlier = first.setdefault(key.secret.get_secret_value(), index)
        if keys[earlier].name != key.name:
            raise SettingsError(
                f"{places[index]}: the key of {key.name} is that of {keys[earlier].name} too "
                f"({places[earlier]}); give each caller a key of its own"
            )
    return tuple(keys)


def _read(path: Path) -> Iterator[tuple[int, NamedKey]]:
    """Yield the keys of a file with their lines; there must be one, or the door would stand open."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise SettingsError(f"api_keys_file: {str(path)!r} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"api_keys_file: {str(path)!r} is not UTF-8 text") from None
    empty = True
    for number, line in enumerate(text.split("\n"), 1):
        words = _words(line)
        if not words:
            continue
        empty = False
        *names, key = words
        if len(names) > 1 or not _KEY.fullmatch(key) or not all(_NAME.fullmatch(name) for name in names):
            raise SettingsError(
                f"api_keys_file: {str(path)!r} line {number} is refused: give KEY or NAME KEY; "
                f"a key is {_KEY_ACCEPTED}, and before it may stand {_NAME_ACCEPTED}"
            )
        yield number, NamedKey(names[0] if names else name_of(key), SecretStr(key))
    if empty:
        raise SettingsError(f"api_keys_file: {str(path)!r} holds no key; give at least one, a line each")


def _words(line: str) -> list[str]:
    """The words of a line up to a comment."""
    words = line.split()
    comment = next((index for index, word in enumerate(words) if word.startswith("#")), len(words))
    return words[:comment]
