"""The root of the settings tree. A setting is a field here or in `sections`."""

from typing import Annotated, Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from replicarouter.settings.api_keys import ApiKeys
from replicarouter.settings.keys import DELIMITER, PREFIX
from replicarouter.settings.replica import ReplicaSettings
from replicarouter.settings.sections import (
    POLICY_NAMES,
    AdminSettings,
    AdmissionSettings,
    ConnectorSettings,
    CorsSettings,
    DrainSettings,
    EjectSettings,
    HealthSettings,
    LogSettings,
    PolicyName,
    PolicyOptions,
    PoolSettings,
    RetrySettings,
    ScrapeSettings,
    TimeoutSettings,
    TlsSettings,
    TracingSettings,
)
from replicarouter.settings.values import (
    ByteCount,
    FileName,
    Flag,
    Host,
    Network,
    Port,
    PositiveCount,
    RelayedPath,
    Seconds,
    Switch,
    Text,
    accepts_items,
    accepts_one_of,
    conflict,
)

SOURCES = "sources"
"""The one keyword that is no setting: the sources to read, the strongest first."""

_ANY_ADDRESS = {"0.0.0.0", "::"}  # noqa: S104


class Settings(BaseSettings):
    """All settings of the router."""

    model_config = SettingsConfigDict(
        extra="forbid",
        frozen=True,
        case_sensitive=True,
        env_prefix=PREFIX,
        env_nested_delimiter=DELIMITER,
    )

    host: Annotated[Host, Flag("--host", "HOST")] = Field(
        default="127.0.0.1", description="Address that clients connect to."
    )
    port: Annotated[Port, Flag("--port", "PORT")] = Field(
        default=8080,
        description="Port that clients connect to; 0 takes a free one, but `admin.port` 0 is none.",
    )
    admin: AdminSettings = AdminSettings()
    replicas: Annotated[
        list[ReplicaSettings],
        accepts_items("a list of URLs and mappings"),
        Flag("--replica", "URL"),
    ] = Field(
        default_factory=list,
        description="The replicas, a URL each (repeat the flag), or in YAML a mapping each.",
    )
    policy: Annotated[PolicyName, accepts_one_of(PolicyName), Flag("--policy", "NAME")] = Field(
        default="least-outstanding",
        description=f"Which replica gets the next request: {', '.join(POLICY_NAMES)}.",
    )
    policy_options: PolicyOptions = PolicyOptions()
    pools: Annotated[
        dict[str, PoolSettings], accepts_items("a mapping of model names to mappings with the key policy")
    ] = Field(
        default_factory=dict,
        description="What differs for the replicas of a model: model name to a mapping with `policy`, "
        "a name as above.",
    )
    connector: ConnectorSettings = ConnectorSettings()
    timeouts: TimeoutSettings = TimeoutSettings()
    admission: AdmissionSettings = AdmissionSettings()
    max_body_bytes: Annotated[ByteCount, Flag("--max-body-bytes", "BYTES")] = Field(
        default=256 * 2**20, description="Largest request body, then 413."
    )
    max_buffered_bytes: ByteCount = Field(
        default=2**30, description="Most bytes of request bodies held in memory, then 503."
    )
    max_header_bytes: ByteCount = Field(
        default=64 * 2**10, description="Largest header field of a request, then 431."
    )
    max_headers: PositiveCount = Field(default=256, description="Most header fields of a request, then 431.")
    health: HealthSettings = HealthSettings()
    scrape: ScrapeSettings = ScrapeSettings()
    eject: EjectSettings = EjectSettings()
    retry: RetrySettings = RetrySettings()
    api_keys: ApiKeys | None = Field(
        default=None,
        description="Keys of which callers must show one: a list, or a mapping of callers' names to keys.",
    )
    api_keys_file: FileName | None = Field(
        default=None, description="A file with such keys, `KEY` or `NAME KEY` on a line."
    )
    trusted_proxies: Annotated[list[Network], accepts_items("a list of networks")] = Field(
        default_factory=list,
        description="Networks whose `X-Forwarded-For` names the caller; once there are any, what others "
        "say of addresses is not passed on to replicas.",
    )
    expose_replica: Switch = Field(
        default_factory=lambda values: not (values.get("api_keys") or values.get("api_keys_file")),
        description="Name the replica that answered in `X-Replicarouter-Replica`; by default only while "
        "no API keys are set.",
    )
    extra_paths: Annotated[list[RelayedPath], accepts_items("a list of paths")] = Field(
        default_factory=list, description="More paths to relay to replicas."
    )
    sse_keepalive: Seconds = Field(
        default=0.0,
        description="Seconds of silence after which a streaming client gets a comment line; 0 for never.",
    )
    aliases: Annotated[dict[str, Text], accepts_items("a mapping of model names to model names")] = Field(
        default_factory=dict, description="Other names of models: name in the request to model."
    )
    tls: TlsSettings = TlsSettings()
    cors: CorsSettings = CorsSettings()
    workers: Annotated[PositiveCount, Flag("--workers", "N")] = Field(
        default=1, description="Processes that share the port."
    )
    drain: DrainSettings = DrainSettings()
    log: LogSettings = LogSettings()
    tracing: TracingSettings = TracingSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003
        init_settings: PydanticBaseSettingsSource,
        *_: PydanticBaseSettingsSource,
        **__: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read the sources that are given; without any, settings made in code are what the code says."""
        sources: tuple[PydanticBaseSettingsSource, ...] = init_settings().get(SOURCES, (init_settings,))
        return sources

    @model_validator(mode="after")
    def _check_replicas(self) -> Self:
        if not self.replicas:
            reason = "give at least one --replica URL or a replicas: list"
            raise conflict(("replicas",), self.replicas, reason)
        urls: dict[str, int] = {}
        names: dict[str, int] = {}
        for index, replica in enumerate(self.replicas):
            first = urls.setdefault(replica.url, index)
            if first != index:
                reason = f"replicas[{first}] has this URL too; list each replica once"
                raise conflict(("replicas", index, "url"), replica.url, reason)
            first = names.setdefault(replica.name, index)
            if first != index:
                reason = f"replicas[{first}] has this name too; give each a name of its own"
                raise conflict(("replicas", index, "name"), replica.name, reason)
        return self

    @model_validator(mode="after")
    def _check_pools(self) -> Self:
        for model in self.pools:
            if model in self.aliases:
                reason = f"this is an alias: name the model, {self.aliases[model]}"
                raise conflict(("pools", model), model, reason)
        return self

    @model_validator(mode="after")
    def _check_ports(self) -> Self:
        hosts = {self.host, self.admin.host}
        if self.port and self.port == self.admin.port and (len(hosts) == 1 or hosts & _ANY_ADDRESS):
            raise conflict(("admin", "port"), self.admin.port, "clients connect to this port")
        return self
