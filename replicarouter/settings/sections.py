"""The sections of the settings tree: one field for each setting, with its bounds and its text."""

from typing import Annotated, Literal, Self, get_args

from pydantic import Field, model_validator

from replicarouter.settings.replica import ReplicaUrl
from replicarouter.settings.url_pattern import AllowedUrl
from replicarouter.settings.values import (
    ByteCount,
    Count,
    FileName,
    Flag,
    HeaderName,
    Host,
    Interval,
    LoadFactor,
    Origin,
    Port,
    PositiveCount,
    Rate,
    Seconds,
    Secret,
    Section,
    Share,
    Switch,
    Text,
    Texts,
    Weight,
    accepts_items,
    accepts_one_of,
    conflict,
    is_loopback,
    lower_case,
)

PolicyName = Literal[
    "round-robin",
    "least-outstanding",
    "power-of-two",
    "random",
    "session",
    "prefix-hash",
    "prefix-cache",
]
POLICY_NAMES: tuple[str, ...] = get_args(PolicyName)
"""The policies that can be configured: the keys of the registry of policies."""

LogLevel = Literal["debug", "info", "warning", "error", "critical"]
LogFormat = Literal["auto", "text", "json"]


class AdminSettings(Section):
    """The operator's door."""

    host: Annotated[Host, Flag("--admin-host", "HOST")] = Field(
        default="127.0.0.1",
        description="Address of the admin port; other than loopback only with `admin.token`.",
    )
    port: Annotated[Port, Flag("--admin-port", "PORT")] = Field(
        default=8081, description="The admin port; 0 for none, but `port` 0 takes a free one."
    )
    token: Secret | None = Field(default=None, description="Bearer token that the admin port asks for.")
    allowed_urls: Annotated[list[AllowedUrl], accepts_items("a list of patterns")] | None = Field(
        default=None,
        description="Patterns of which the URL of a replica added through the admin port must match one: "
        "`[scheme://]host[:port][/path]` with `*` inside a part, or a network; by default any URL will do.",
    )

    @model_validator(mode="after")
    def _check_token(self) -> Self:
        if self.port and self.token is None and not is_loopback(self.host):
            raise conflict(
                ("host",),
                self.host,
                "others than this machine could reach the admin port; set admin.token, "
                "or give a loopback address such as 127.0.0.1",
            )
        return self


class PoolSettings(Section):
    """What holds for the replicas of one model."""

    policy: Annotated[PolicyName, accepts_one_of(PolicyName)] = Field(
        description="Which of them gets the next request."
    )


class PolicyOptions(Section):
    """What a policy can be told."""

    session_headers: Annotated[list[HeaderName], accepts_items("a list of header names")] = Field(
        default=[
            "X-Session-Id",
            "X-Correlation-Id",
            "X-SMG-Routing-Key",
            "X-Session-Affinity",
            "X-Dynamo-Session-ID",
            "x-litellm-session-id",
            "x-session-token",
        ],
        description="Header fields that may carry the session key, first come first.",
    )
    stick_to_api_key: Switch = Field(
        default=False, description="Take the caller's key for the session key if there is no other."
    )
    load_factor: LoadFactor = Field(
        default=1.25,
        description="Times the mean of outstanding requests (but at least 4) that a replica may have before "
        "`session` and `prefix-hash` send a key elsewhere.",
    )
    prefix_index_bytes: ByteCount = Field(
        default=256 * 2**20,
        description="Most memory for what `prefix-cache` remembers of each pool's replicas.",
    )
    shadow: Annotated[PolicyName, accepts_one_of(PolicyName)] | None = Field(
        default=None,
        description="Another policy that is asked beside the real one, for the metrics only: "
        "what it would have done.",
    )
    decisions_per_second: Count = Field(
        default=50,
        description="Most routing decisions a second that are kept for `GET /admin/decisions/{request_id}`; "
        "0 for none.",
    )


class ConnectorSettings(Section):
    """Connections to replicas for requests; probes and scrapes have a connector of their own."""

    limit: Annotated[Count, Flag("--connector-limit", "N")] = Field(
        default=0,
        description="Most connections to all replicas together, 0 for no limit; a request above "
        "it waits here, unseen by the engines.",
    )
    limit_per_replica: Count = Field(
        default=0, description="Most connections to one replica, 0 for no limit."
    )
    keepalive: Seconds = Field(
        default=3.0,
        description="Seconds that an idle connection to a replica is kept; stay below the "
        "engine's own limit, 5 s for those that run on uvicorn.",
    )


class TimeoutSettings(Section):
    """How long anything may take, in seconds."""

    connect: Annotated[Seconds, Flag("--connect-timeout", "SECONDS")] = Field(
        default=5.0,
        description="Seconds for one new connection to a replica, TCP and TLS; 0 for no limit.",
    )
    response_head: Seconds = Field(
        default=0.0,
        description="Seconds from the request sent to the status line, 0 for no limit; the "
        "prefill of a long prompt can take minutes.",
    )
    idle: Seconds = Field(
        default=0.0, description="Longest silence inside a response in seconds, 0 for no limit."
    )
    total: Seconds = Field(default=0.0, description="Seconds for a whole request, 0 for no limit.")
    client_head: Seconds = Field(
        default=10.0, description="Seconds for a client to send a request head; 0 for no limit."
    )
    client_body: Seconds = Field(
        default=60.0,
        description="Longest gap inside a request body in seconds, then 408; 0 for no limit.",
    )
    client_write: Seconds = Field(
        default=120.0,
        description="Seconds a client may take nothing while its buffer is full before its "
        "connection is closed; 0 for no limit.",
    )
    client_keepalive: Seconds = Field(
        default=75.0, description="Seconds that an idle client connection is kept."
    )


class PriorityHeader(Section):
    """A header field in which trusted callers say how urgent a request is."""

    name: HeaderName = Field(description="Name of the header field.")
    values: Annotated[Texts, Field(min_length=1), accepts_items("a list of values")] = Field(
        description="Its allowed values, most urgent first."
    )


class AdmissionSettings(Section):
    """When a request may go to a replica."""

    max_outstanding_per_replica: Annotated[Count, Flag("--max-outstanding", "N")] = Field(
        default=0,
        description="Most outstanding requests at one replica, 0 for no limit; those above it "
        "queue in the router.",
    )
    max_queued: Annotated[Count, Flag("--max-queued", "N")] = Field(
        default=10000, description="Most requests in the queue; those beyond it get 429."
    )
    queue_timeout: Annotated[Seconds, Flag("--queue-timeout", "SECONDS")] = Field(
        default=60.0,
        description="Longest wait in the queue or for a connection in seconds, then 503.",
    )
    shares: Annotated[dict[str, Weight], accepts_items("a mapping of callers to numbers above 0")] = Field(
        default_factory=dict,
        description="Weights of callers, by key name or address, in the order of the queue.",
    )
    priority_header: PriorityHeader | None = Field(
        default=None,
        description="Header field that orders the queue: its `name` and its `values`, most urgent first.",
    )


class HealthSettings(Section):
    """When a replica counts as healthy."""

    interval: Annotated[Interval, Flag("--health-interval", "SECONDS")] = Field(
        default=2.0, description="Seconds between two probes of a replica's `/health`."
    )
    timeout: Interval = Field(default=2.0, description="Seconds for one probe.")
    unhealthy_after: PositiveCount = Field(
        default=2, description="Failed probes in a row that make a replica unhealthy."
    )
    healthy_after: PositiveCount = Field(
        default=1, description="Passed probes in a row that make it ready again."
    )
    stall_after: Seconds = Field(
        default=30.0,
        description="Seconds without a byte or a step of its engine after which a replica with "
        "our requests is taken out; 0 for never.",
    )
    stall_end: Seconds = Field(
        default=120.0,
        description="Seconds of such a stall after which its streams are ended; 0 for never.",
    )
    slow_start: Seconds = Field(
        default=10.0,
        description="Seconds over which the share of a new or returning replica grows to full.",
    )


class ScrapeSettings(Section):
    """Reading the engines' own numbers."""

    interval: Annotated[Interval, Flag("--scrape-interval", "SECONDS")] = Field(
        default=1.0, description="Seconds between two readings of a replica's `/metrics`."
    )


class EjectSettings(Section):
    """Setting aside a replica whose requests fail."""

    consecutive_failures: PositiveCount = Field(
        default=5, description="Failed requests in a row that eject a replica."
    )
    base_seconds: Seconds = Field(
        default=3.0, description="Seconds of the first ejection; each further one doubles it."
    )
    max_seconds: Seconds = Field(default=60.0, description="Longest ejection in seconds.")
    max_share: Share = Field(
        default=0.5, description="Largest share of a pool that may be ejected at a time."
    )

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.max_seconds < self.base_seconds:
            reason = f"give at least eject.base_seconds, which is {self.base_seconds:g}"
            raise conflict(("max_seconds",), self.max_seconds, reason)
        return self


class RetrySettings(Section):
    """Trying a request again before the client has seen anything of an answer."""

    max_attempts: PositiveCount = Field(default=3, description="Most replicas that one request is tried on.")
    budget: Rate = Field(
        default=0.2, description="Retries allowed as a share of the requests of the last 10 s."
    )
    budget_floor: Rate = Field(default=10.0, description="Retries allowed per second whatever the share.")
    stale_window: Seconds = Field(
        default=0.05,
        description="Seconds after the write in which a reused connection that closes without a "
        "byte counts as never used.",
    )
    resend: Switch = Field(
        default=False,
        description="Also retry a request that the engine may have begun; it may then run twice.",
    )


class TlsSettings(Section):
    """TLS to clients and to replicas."""

    cert: FileName | None = Field(default=None, description="Certificate chain shown to clients, a PEM file.")
    key: FileName | None = Field(default=None, description="Its private key, a PEM file.")
    replica_ca: FileName | None = Field(
        default=None, description="Authorities trusted for `https` replicas, a PEM file."
    )

    @model_validator(mode="after")
    def _check_pair(self) -> Self:
        if (self.cert is None) != (self.key is None):
            given, lacking = ("cert", "key") if self.cert else ("key", "cert")
            raise conflict((given,), str(self.cert or self.key), f"tls.{lacking} is missing")
        return self


class CorsSettings(Section):
    """Pages that call the router from a browser."""

    allow_origins: Annotated[list[Origin], accepts_items("a list of origins")] = Field(
        default_factory=list,
        description="Origins of such pages, such as `https://chat.example`; `*` for any.",
    )


class DrainSettings(Section):
    """Shutting down without breaking anything."""

    delay: Seconds = Field(
        default=0.0,
        description="Seconds after SIGTERM in which new requests are still served while `/ready` "
        "already says 503.",
    )
    timeout: Seconds = Field(default=600.0, description="Seconds that running requests get to finish.")


class LogSettings(Section):
    """What is logged, and how."""

    level: Annotated[LogLevel, lower_case, accepts_one_of(LogLevel), Flag("--log-level", "LEVEL")] = Field(
        default="info", description=f"Least level logged: {', '.join(get_args(LogLevel))}."
    )
    format: Annotated[LogFormat, lower_case, accepts_one_of(LogFormat), Flag("--log-format", "FORMAT")] = (
        Field(default="auto", description="`text`, `json`, or `auto`: text on a terminal, else json.")
    )
    sample: Share = Field(
        default=1.0,
        description="Share of the successful requests that get an access line, drawn by request id, so that "
        "several routers draw alike; all others get one in any case.",
    )


class TracingSettings(Section):
    """Which trace a request belongs to, and where its spans go."""

    start: Switch = Field(
        default=True,
        description="Give a request without a valid `traceparent` one; else all passes on as it comes.",
    )
    sample_ratio: Share = Field(
        default=1.0, description="Share of the traces begun here that are sampled; of others the caller says."
    )
    otlp_endpoint: ReplicaUrl | None = Field(
        default=None,
        description="Where spans go, by OTLP over HTTP, such as `http://127.0.0.1:4318` (where there is no "
        "path, `/v1/traces` is added); by default none are made. Needs the extra `otel`: "
        "`pip install '.[otel]'` in a checkout, or `'replicarouter[otel]'`.",
    )
    service_name: Text = Field(default="replicarouter", description="The name of this router in spans.")
