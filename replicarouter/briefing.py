"""What each room is told of the settings; `app` tells it at the start, and again at every reload."""

from collections.abc import Sequence
from random import Random
from typing import Any

from replicarouter.access.cors import Cors
from replicarouter.access.door import Door
from replicarouter.access.proxies import Proxies
from replicarouter.admission.controller import Admission
from replicarouter.admission.plan import PolicyPlan
from replicarouter.admission.priority import Priority
from replicarouter.affinity.reader import KeyReader
from replicarouter.clock import Clock
from replicarouter.exchange import Exchange
from replicarouter.protocol.traceparent import Tracing
from replicarouter.proxy.attempt import Terms
from replicarouter.proxy.handler import Limits
from replicarouter.proxy.observe import Timings
from replicarouter.proxy.reception import Reception
from replicarouter.proxy.retry import RetryRules
from replicarouter.settings import Settings, named_keys

LINGER = 2.0
"""Seconds an unread request body is read on after an early answer, so that the answer arrives."""

READ_BUFFER = 262144
"""Bytes of a request body that may wait unread before its client is told to slow down."""


class FirstContents:
    """Timings of answers, of which admission hears too: policies learn from them."""

    __slots__ = ("_admission", "_timings", "first_answer", "gaps")

    def __init__(self, timings: Timings, admission: Admission) -> None:
        self._timings = timings
        self._admission = admission
        self.gaps = timings.gaps
        self.first_answer = timings.first_answer

    def first_content(self, exchange: Exchange) -> None:
        """The first content was sent on."""
        self._timings.first_content(exchange)
        self._admission.first_content(exchange)


def policy_plan(settings: Settings) -> PolicyPlan:
    """Which policy each pool goes by."""
    by_model = {model: pool.policy for model, pool in settings.pools.items()}
    return PolicyPlan(settings.policy, by_model, settings.policy_options)


def key_reader(settings: Settings) -> KeyReader:
    """What ties requests to replicas; it remembers prompts, so it is made anew only for other `key_terms`."""
    options = settings.policy_options
    return KeyReader(options.session_headers, stick_to_api_key=options.stick_to_api_key)


def key_terms(settings: Settings) -> tuple[Sequence[str], bool]:
    """The options that a `key_reader` goes by."""
    options = settings.policy_options
    return options.session_headers, options.stick_to_api_key


def open_reception(settings: Settings) -> Reception:
    """The door of the main port; raises `SettingsError` when its keys cannot be read."""
    keys = named_keys(settings)
    return Reception(
        Door(keys, Proxies(settings.trusted_proxies)),
        Cors(settings.cors.allow_origins),
        Priority(settings.admission.priority_header, keys_needed=bool(keys)),
    )


def attempt_terms(settings: Settings, timings: Timings, clock: Clock) -> Terms:
    """What holds for every attempt."""
    return Terms(
        clock=clock,
        timings=timings,
        response_head=settings.timeouts.response_head,
        idle=settings.timeouts.idle,
        expose_replica=settings.expose_replica,
        stale_window=settings.retry.stale_window,
        sse_keepalive=settings.sse_keepalive,
    )


def tracing_rules(settings: Settings) -> Tracing:
    """Which requests belong to which traces; spans are made where there is somebody to take them."""
    told = settings.tracing
    record = told.otlp_endpoint is not None
    return Tracing(Random(), start=told.start, ratio=told.sample_ratio, record=record)


def retry_rules(settings: Settings) -> RetryRules:
    """What may be tried again."""
    return RetryRules(settings.retry.max_attempts, settings.retry.resend)


def corridor_limits(settings: Settings) -> Limits:
    """What one request may take."""
    return Limits(
        body_bytes=settings.max_body_bytes,
        body_gap=settings.timeouts.client_body,
        total=settings.timeouts.total,
    )


def parser_options(settings: Settings) -> dict[str, Any]:
    """What aiohttp's server is told of heads, buffers and idle connections."""
    return {
        "keepalive_timeout": settings.timeouts.client_keepalive,
        "lingering_time": LINGER,
        "max_line_size": settings.max_header_bytes,
        "max_field_size": settings.max_header_bytes,
        "max_headers": settings.max_headers,
        "read_bufsize": READ_BUFFER,
    }


def handshake_limit(settings: Settings) -> float | None:
    """Seconds for a client's TLS handshake: as long as for its request's head; None for the loop's own."""
    return settings.timeouts.client_head or None
