"""Sends spans to a collector by OTLP over HTTP, in a thread of its own: no request waits for it, and what a
collector does not take in time is dropped."""

import logging
import os
import ssl
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from random import Random
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from replicarouter.clock import Clock
from replicarouter.exchange import Exchange
from replicarouter.settings import TracingSettings
from replicarouter.tracing.places import Places
from replicarouter.tracing.session import CollectorSession
from replicarouter.tracing.spans import SpanMaker

log = logging.getLogger(__name__)

MOST_WAITING = 8192
"""Requests whose spans may wait."""

BATCH = 8
"""Requests whose spans go together. Encoding them takes the interpreter for about a millisecond; more at a
time would be felt by streams."""

LOOK = 0.25
"""Seconds between two looks for requests that have ended."""

ANSWER = 5.0
"""Seconds a collector gets to take a batch, attempts after the first included."""

WARN_EVERY = 60.0
"""Seconds between two warnings of one kind."""

TRACES = "/v1/traces"
_OWN_AUTHORITIES = ("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE")

LIBRARIES = ("opentelemetry", "urllib3")
"""Loggers of those that say more than once a minute what is wrong with a collector."""

MISHAPS = (
    *(ArithmeticError, AttributeError, LookupError, MemoryError),
    *(OSError, RuntimeError, TypeError, ValueError),
)
"""What an odd request or answer may raise where spans are made, encoded or sent. It costs these spans."""


class _Complaint(logging.Handler):
    """Keeps what was said last, to be told when it matters."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()[:500]


class Exporter:
    """Takes ended requests by `observe`, and exports their spans. `close` it in the end; it blocks, so not on
    the event loop."""

    def __init__(self, settings: TracingSettings, places: Places, *, version: str, clock: Clock) -> None:
        assert settings.otlp_endpoint is not None
        self._clock = clock
        self._waiting: deque[Exchange] = deque()
        self._stop = threading.Event()
        self._out = OTLPSpanExporter(
            _traces_url(settings.otlp_endpoint),
            certificate_file=_authorities(),
            timeout=ANSWER,
            session=CollectorSession(),
        )
        self._complaint = _Complaint()
        for name in LIBRARIES:
            library = logging.getLogger(name)
            library.handlers[:], library.propagate = [self._complaint], False
        resource = Resource.create({"service.name": settings.service_name, "service.version": version})
        self._maker = SpanMaker(resource, InstrumentationScope("replicarouter", version), places, Random())
        self._warned_at: dict[str, float] = {}
        self._refused = self._lost = 0
        self._thread = threading.Thread(target=self._run, name="span exporter", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """Requests whose spans were lost."""
        return self._refused + self._lost

    def observe(self, exchange: Exchange) -> None:
        """Take over an ended request, if its trace is recorded and there is room."""
        if not exchange.trace.recorded:
            return
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append(exchange)
        else:
            self._refused += 1

    def close(self, seconds: float) -> None:
        """Export what waits, for so long at most."""
        self._stop.set()
        self._thread.join(seconds)
        self._refused += len(self._waiting)
        self._waiting.clear()
        # Wakes up the thread where it waits between two attempts, if it is there still.
        self._out.shutdown()  # type: ignore[no-untyped-call]

    def _run(self) -> None:
        while not self._stop.wait(LOOK):
            while self._waiting and (self._export() or not self._stop.is_set()):
                pass
        while self._waiting and self._export():
            pass

    def _export(self) -> bool:
        """Export one batch; False when the collector did not take it."""
        offset = time.time() - self._clock()
        made = [spans for exchange in self._take() if (spans := self._spans_of(exchange, offset))]
        if not made or self._sent([span for spans in made for span in spans]):
            return True
        self._lost += len(made)
        self._warn("spans not taken by the collector", self._complaint.text)
        return False

    def _spans_of(self, exchange: Exchange, offset: float) -> list[ReadableSpan]:
        """The spans of a request; none, and it is lost, where they cannot be made."""
        try:
            return self._maker.spans_of(exchange, offset)
        except MISHAPS as error:
            self._lost += 1
            self._warn("spans not made", f"{type(error).__name__}: {error}")
            return []

    def _sent(self, spans: Sequence[ReadableSpan]) -> bool:
        try:
            return self._out.export(spans) is SpanExportResult.SUCCESS
        except MISHAPS as error:
            self._complaint.text = f"{type(error).__name__}: {error}"
            return False

    def _warn(self, event: str, why: str) -> None:
        now = self._clock()
        if now >= self._warned_at.get(event, -WARN_EVERY) + WARN_EVERY:
            self._warned_at[event] = now
            log.warning(event, extra={"why": why})

    def _take(self) -> Iterator[Exchange]:
        """The requests that have waited longest; others than this thread may take them all away."""
        for _ in range(BATCH):
            try:
                yield self._waiting.popleft()
            except IndexError:
                return


def _authorities() -> str | None:
    """The authorities that this machine believes, or `SSL_CERT_FILE`; None where the SDK's own variables name
    others, or nothing does."""
    if any(name in os.environ for name in _OWN_AUTHORITIES):
        return None
    paths = ssl.get_default_verify_paths()
    return paths.cafile or paths.capath


def _traces_url(endpoint: str) -> str:
    return endpoint if urlsplit(endpoint).path else f"{endpoint}{TRACES}"
