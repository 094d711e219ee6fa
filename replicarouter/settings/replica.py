"""What is said of one replica: an entry of `replicas:`, as a URL or as a mapping."""

import re
from typing import Annotated, Any, Literal
from urllib.parse import SplitResult, urlsplit

from pydantic import BeforeValidator, Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from replicarouter.settings.values import (
    Count,
    PositiveCount,
    Secret,
    Section,
    Text,
    Texts,
    Weight,
    accepts,
    accepts_items,
    accepts_one_of,
    is_host,
    refusal,
)

URL_ACCEPTED = "an http:// or https:// URL with a host, such as http://127.0.0.1:8001"
_DEFAULT_PORTS = {"http": 80, "https": 443}


def _credentials_masked(url: str) -> str:
    without_user = re.sub(r"^([A-Za-z][A-Za-z+.-]*://)?.*@", r"\1***@", url)
    return repr(re.sub(r"[?#].*", "?***", without_user))


def _split(url: str) -> SplitResult | None:
    """Split a URL, or say by `None` that it is none of ours."""
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        return None
    try:
        parts = urlsplit(url)
        usable = parts.port is None or parts.port > 0
    except ValueError:
        return None
    if parts.scheme not in _DEFAULT_PORTS or not usable or not is_host(parts.hostname or ""):
        return None
    return parts


def _host_text(parts: SplitResult) -> str:
    host = parts.hostname or ""
    return f"[{host}]" if ":" in host else host


def canonical_url(value: object) -> str:
    """Check a replica's URL and write it in one way, so that equal ones can be told.

    Host in lower case, no default port, no slash at the end; a base path stays.
    """
    if not isinstance(value, str):
        raise refusal(URL_ACCEPTED)
    shown = _credentials_masked(value)
    parts = _split(value)
    if parts is None:
        raise refusal(URL_ACCEPTED, shown=shown)
    if "@" in parts.netloc:
        raise refusal("a URL without user and password; a key goes into api_key", shown=shown)
    if "?" in value or "#" in value:
        raise refusal("a URL without query and fragment", shown=shown)
    port = "" if parts.port in {None, _DEFAULT_PORTS[parts.scheme]} else f":{parts.port}"
    return f"{parts.scheme}://{_host_text(parts)}{port}{parts.path.rstrip('/')}"


def default_name(url: str) -> str:
    """Name a replica by its host and port; `url` is a canonical one."""
    parts = urlsplit(url)
    return f"{_host_text(parts)}:{parts.port or _DEFAULT_PORTS[parts.scheme]}"


EngineName = Literal["auto", "vllm", "sglang", "generic"]
Role = Literal["both", "prefill", "decode"]

ReplicaUrl = Annotated[str, BeforeValidator(canonical_url)]
# A name stands in metric labels, in a response header and in paths of the admin API.
ReplicaName = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9._:\[\]-]{1,128}$"),
    accepts("1 to 128 letters, digits and . _ : - [ ]"),
]


class ReplicaSettings(Section):
    """One replica, as configured."""

    url: ReplicaUrl = Field(
        description="Where the replica listens; a base path is put before the path of a request."
    )
    name: ReplicaName = Field(
        default_factory=lambda values: default_name(values["url"]),
        description="Its name in metrics, logs, receipts and the admin API; by default host:port.",
    )
    weight: Weight = Field(default=1.0, description="Its share of the requests against others'.")
    max_outstanding: Count | None = Field(
        default=None,
        description="Most outstanding requests at this replica, 0 for no limit; "
        "by default `admission.max_outstanding_per_replica`.",
    )
    role: Annotated[Role, accepts_one_of(Role)] = Field(
        default="both", description="`both`, `prefill` or `decode`."
    )
    engine: Annotated[EngineName, accepts_one_of(EngineName)] = Field(
        default="auto",
        description="Its software: `vllm`, `sglang`, `generic` (says nothing of itself), or `auto` "
        "to tell by its `/metrics` page.",
    )
    api_key: Secret | None = Field(
        default=None, description="Sent to this replica in place of the caller's key."
    )
    models: Annotated[Texts, Field(min_length=1), accepts_items("a list of model names")] | None = Field(
        default=None,
        description="Models it serves; by default it is asked with every probe.",
    )
    max_num_seqs: PositiveCount | None = Field(
        default=None,
        description="Most sequences its engine runs at once, for the checks at start-up; "
        "256 is assumed when it is not given.",
    )
    labels: Annotated[dict[str, Text], accepts_items("a mapping of text to text")] = Field(
        default_factory=dict, description="Free words about it, shown on the admin port."
    )

    @model_validator(mode="before")
    @classmethod
    def _from_url(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"url": value}
        if not isinstance(value, dict | cls):
            raise refusal("a URL, or a mapping with the key url")
        return value

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Describe both forms of an entry."""
        return {"anyOf": [{"type": "string", "format": "uri"}, handler(core_schema)]}
