"""The kinds of value a setting may have. Each refuses everything else in words that say what it
accepts, so that a bad setting never shows a library's wording."""

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    WithJsonSchema,
    WrapValidator,
)
from pydantic_core import PydanticCustomError

MASK = "***"
"""What stands in for a secret wherever a value is shown."""

_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_BYTE_COUNT = re.compile(r"(\d+)\s*(KiB|MiB|GiB)?")
_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://([a-z0-9._-]+|\[[0-9a-f:.]+\])(?::(\d{1,5}))?/?")
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?\.?")


@dataclass(frozen=True, slots=True)
class Flag:
    """Marks a setting that has a command-line flag."""

    name: str
    metavar: str


class Section(BaseModel):
    """A group of settings: unknown keys are refused, and values do not change once read."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def refusal(accepted: str, *, shown: str | None = None) -> PydanticCustomError:
    """Make the error of a value that is not accepted; `shown` replaces the value in messages."""
    return PydanticCustomError("refused", "{accepted}", {"accepted": accepted, "shown": shown})


def conflict(at: tuple[int | str, ...], value: object, reason: str) -> PydanticCustomError:
    """Make the error of a value that does not go with another.

    `at` is its place below what is being validated; `value` is shown, so it must not be a secret.
    """
    return PydanticCustomError("conflict", "{reason}", {"at": at, "value": value, "reason": reason})


def accepts(text: str, *, secret: bool = False) -> WrapValidator:
    """Replace whatever a validation finds wrong with a value by what is accepted."""

    def check(value: Any, validate: Callable[[Any], Any]) -> Any:
        try:
            return validate(value)
        except ValidationError:
            raise refusal(text, shown=MASK if secret else None) from None

    return WrapValidator(check)


def accepts_items(text: str, *, secret: bool = False) -> WrapValidator:
    """Like `accepts` for a list or mapping, leaving alone what its items say of themselves."""

    def check(value: Any, validate: Callable[[Any], Any]) -> Any:
        try:
            return validate(value)
        except ValidationError as error:
            if any(problem["loc"] for problem in error.errors(include_url=False)):
                raise
            raise refusal(text, shown=MASK if secret else None) from None

    return WrapValidator(check)


def accepts_one_of(literal: Any) -> WrapValidator:
    """Accept the words of a `Literal`."""
    return accepts(f"one of {', '.join(get_args(literal))}")


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can connect to a port bound to `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def byte_text(count: int) -> str:
    """Write a number of bytes in the largest unit that divides it, in a form that is accepted."""
    for unit in ("GiB", "MiB", "KiB"):
        if count and count % _UNITS[unit] == 0:
            return f"{count // _UNITS[unit]} {unit}"
    return str(count)


def is_host(text: str) -> bool:
    """Tell whether `text` is a host name or an address, without brackets and without a port."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return _HOST_NAME.fullmatch(text) is not None
    return True


def _host(text: str) -> str:
    if not is_host(text):
        raise ValueError
    return text


def _not_a_switch(value: object) -> object:
    # Python counts true and false as 1 and 0; a port of `yes` is a slip all the same.
    if isinstance(value, bool):
        raise refusal("a number")
    return value


def _bytes_of(value: object) -> object:
    if isinstance(value, str) and (parts := _BYTE_COUNT.fullmatch(value.strip())):
        return int(parts[1]) * _UNITS.get(parts[2], 1)
    return value


def _visible(secret: SecretStr) -> SecretStr:
    text = secret.get_secret_value()
    if not text or not all("!" <= character <= "~" for character in text):
        raise ValueError
    return secret


def _path(text: str) -> str:
    if not re.fullmatch(r"/[!-~]*", text) or "?" in text or "#" in text:
        raise ValueError
    return text


def _origin(text: str) -> str:
    """Write an origin as browsers do: in lower case, and without the port that its scheme implies."""
    if text in ("*", "null"):
        return text
    parts = _ORIGIN.fullmatch(text.lower())
    if parts is None:
        raise ValueError
    scheme, host, port = parts.groups()
    return f"{scheme}://{host}" if port in (None, _DEFAULT_PORTS.get(scheme)) else f"{scheme}://{host}:{port}"


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


number = BeforeValidator(_not_a_switch)
"""Keeps true and false from counting as 1 and 0."""

lower_case = BeforeValidator(_lower)
"""Makes the case of a word not matter."""

Port = Annotated[int, Field(ge=0, le=65535), number, accepts("a port, a whole number from 0 to 65535")]
Count = Annotated[int, Field(ge=0), number, accepts("a whole number, 0 or more")]
PositiveCount = Annotated[int, Field(ge=1), number, accepts("a whole number, 1 or more")]
Seconds = Annotated[
    float, Field(ge=0, allow_inf_nan=False), number, accepts("a number of seconds, 0 or more")
]
Interval = Annotated[
    float,
    Field(ge=0.01, allow_inf_nan=False),
    number,
    accepts("a number of seconds, 0.01 or more"),
]
Rate = Annotated[float, Field(ge=0, allow_inf_nan=False), number, accepts("a number, 0 or more")]
Share = Annotated[float, Field(ge=0, le=1), number, accepts("a number from 0 to 1")]
Weight = Annotated[float, Field(gt=0, allow_inf_nan=False), number, accepts("a number above 0")]
LoadFactor = Annotated[float, Field(ge=1, allow_inf_nan=False), number, accepts("a number, 1 or more")]
Switch = Annotated[bool, accepts("true or false")]
Text = Annotated[str, Field(min_length=1), accepts("text (digits alone need quotes in YAML)")]
Texts = Annotated[list[Text], accepts_items("a list of texts")]
FileName = Annotated[Path, accepts("the path of a file")]

ByteCount = Annotated[
    int,
    Field(ge=1),
    number,
    BeforeValidator(_bytes_of),
    accepts("a whole number of bytes, 1 or more, or one with a unit such as 256 MiB"),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1},
                {"type": "string", "pattern": rf"^{_BYTE_COUNT.pattern}$"},
            ]
        }
    ),
]
Host = Annotated[
    str,
    AfterValidator(_host),
    accepts("a host name or an address such as 127.0.0.1 or ::1, without a port"),
]
Secret = Annotated[
    SecretStr, AfterValidator(_visible), accepts("visible ASCII text without spaces", secret=True)
]
Origin = Annotated[
    str,
    AfterValidator(_origin),
    accepts("an origin such as https://chat.example or http://localhost:3000, or * for any"),
]
HeaderName = Annotated[
    str,
    Field(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"),
    accepts("the name of an HTTP header field, such as X-Session-Id"),
]
RelayedPath = Annotated[
    str, AfterValidator(_path), accepts("a path that begins with /, without query and fragment")
]
Network = Annotated[IPv4Network | IPv6Network, accepts("a network or an address, such as 10.0.0.0/8")]
