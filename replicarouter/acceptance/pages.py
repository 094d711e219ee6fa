"""Reading metrics pages: an engine's through its dialect, the router's by its own names."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from replicarouter.acceptance.errors import CheckError, Unreadable
from replicarouter.acceptance.pace import together
from replicarouter.acceptance.reply import Reply
from replicarouter.acceptance.scene import Replica
from replicarouter.engines import PARSER, EngineReading, detect
from replicarouter.engines.exposition import PageParser

PREFIX = "replicarouter_"
LLAMA_RUNNING = "llamacpp:requests_processing"
"""llama.cpp's count of requests that run; it has no dialect of its own."""
_LLAMA = PageParser((LLAMA_RUNNING,))


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
        running = next((value for _, value in _LLAMA.parse(reply.body).get(LLAMA_RUNNING, ())), None)
    return EnginePage(dialect.name, reading, running)


async def page_of(replica: Replica) -> EnginePage:
    """Ask its engine for it; raises `NoAnswer`, or `Refused`."""
    return engine_page(await replica.door.get("/metrics"))


async def sum_at_engines(
    replicas: Sequence[Replica], figure: Callable[[EnginePage], float | None]
) -> float | None:
    """The sum of a figure on these engines' pages of now; None when one of them does not tell it."""
    total = 0.0
    for page in await together(map(page_of, replicas)):
        value = None if isinstance(page, CheckError) else figure(page)
        if value is None:
            return None
        total += value
    return total if replicas else None


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
