"""Reading metrics pages: an engine's through its dialect, the router's by its own names. No I/O."""

from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from replicarouter.acceptance.errors import Unreadable
from replicarouter.acceptance.reply import Reply
from replicarouter.engines import PARSER, EngineReading, detect

PREFIX = "replicarouter_"
LLAMA_RUNNING = "llamacpp:requests_processing"
"""llama.cpp's count of requests that run; it has no dialect of its own."""


@dataclass(frozen=True, slots=True)
class EnginePage:
    """What an engine's page says; `dialect` is the software that was recognised, `generic` for none."""

    dialect: str
    reading: EngineReading
    running: float | None


def engine_page(reply: Reply) -> EnginePage:
    """Read an engine's page; raises `Refused` without one."""
    reply.must_be_ok()
    samples = PARSER.parse(reply.body)
    dialect = detect(samples)
    reading = dialect.read(samples)
    running = reading.running
    if running is None:
        running = next((value for name, value in _plain(reply.body) if name == LLAMA_RUNNING), None)
    return EnginePage(dialect.name, reading, running)


class RouterPage:
    """The router's page; names are given without the prefix."""

    def __init__(self, reply: Reply) -> None:
        """Raises `Refused`, or `Unreadable` for what is no page."""
        reply.must_be_ok()
        try:
            families = list(text_string_to_metric_families(reply.body.decode("utf-8", "replace")))
        except ValueError:
            raise Unreadable(f"{reply.place}: /metrics is no page of metrics") from None
        self._families: dict[str, Metric] = {family.name: family for family in families}

    def has(self, name: str) -> bool:
        """Whether a family is there; a counter's name goes without `_total`."""
        return PREFIX + name in self._families

    def series(self, name: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each sample of a gauge."""
        family = self._families.get(PREFIX + name)
        return [(sample.labels, sample.value) for sample in family.samples] if family else []

    def value(self, name: str) -> float | None:
        """The one value of a gauge without labels; None when it is missing."""
        series = self.series(name)
        return series[0][1] if series else None


def _plain(page: bytes) -> Iterator[tuple[str, float]]:
    for line in page.decode("utf-8", "replace").splitlines():
        name, _, value = line.partition(" ")
        if name == LLAMA_RUNNING:
            try:
                yield name, float(value)
            except ValueError:
                continue
