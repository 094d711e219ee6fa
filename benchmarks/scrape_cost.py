"""What does a scrape cost? CPU milliseconds of one `GET /metrics` of a busy router, and of the page that the
client library writes of the same families, in turn in the same run.

    python -m benchmarks.scrape_cost
    python -m benchmarks.scrape_cost --replicas 256 --repetitions 101

The router serves real sockets in this process; its counters, histograms and requests are filled in by hand.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

from prometheus_client import generate_latest

from replicarouter.app import Router
from replicarouter.engines.base import EngineReading
from replicarouter.exchange import Exchange, Stage
from replicarouter.fleet.ledger import OUTSTANDING
from replicarouter.fleet.lifecycle import Event
from replicarouter.fleet.replica import Replica
from replicarouter.settings import Settings
from replicarouter.telemetry.collector import RouterCollector
from replicarouter.telemetry.exposition import Exposition

BUDGET = 20.0
"""Milliseconds of CPU that a page of 64 replicas may take."""

MODELS = ("qwen-27b", "qwen-27b-instruct", "llama-70b", "embed-large")
ENDPOINTS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages")
OUTCOMES = ("ok", "client_gone", "upstream_error", "replica_disconnected", "connect_failed", "queue_timeout")
STREAMS = 32
"""Requests outstanding at each replica."""

GET = b"GET /metrics HTTP/1.1\r\nHost: bench\r\n\r\n"


def main() -> int:
    """Measure, print the table, and return 1 if the page takes longer than it may."""
    arguments = parse()
    costs = asyncio.run(measure(arguments.replicas, arguments.repetitions))
    for name, found in costs.items():
        print(f"{name:<34} {found.median:8.2f} ms  ({found.least:.2f} to {found.most:.2f})")
    if arguments.replicas == 64 and costs["GET /metrics"].median > BUDGET:
        print(f"GET /metrics takes more than {BUDGET:g} ms.")
        return 1
    return 0


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--replicas", type=int, default=64, metavar="N")
    parser.add_argument("--repetitions", type=int, default=51, metavar="N")
    return parser.parse_args()


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU milliseconds of user and kernel, over repetitions."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, costs: list[float]) -> "Cost":
        """The cost of these repetitions."""
        return cls(statistics.median(costs), min(costs), max(costs))


async def measure(replicas: int, repetitions: int) -> Mapping[str, Cost]:
    """Start a router, fill it, and read its page again and again, in turn in each of the ways."""
    router = Router(settings_of(replicas))
    await router.start()
    try:
        fill(router)
        collector = RouterCollector(router.sources)
        exposition = Exposition(collector.families)
        exposition.page()
        reader, writer = await asyncio.open_connection("127.0.0.1", router.port)
        page = await get(reader, writer)
        told = f"{page.count(b'# TYPE')} families, {samples(page)} samples, {len(page):,} bytes"
        print(f"{replicas} replicas, {told}")
        costs: dict[str, list[float]] = {}
        for _ in range(repetitions):
            with timed(costs, "GET /metrics"):
                await get(reader, writer)
            with timed(costs, "of it the page"):
                exposition.page()
            with timed(costs, "of it reading"):
                for family in collector.families():
                    list(family.rows)
            with timed(costs, "the client library's page"):
                generate_latest(collector)
        writer.close()
        return {name: Cost.of(found) for name, found in costs.items()}
    finally:
        router.ledger.in_flight.clear()
        await router.stop()


def settings_of(replicas: int) -> Settings:
    """A fleet that nobody asks anything, so that only scrapes of the router are measured."""
    fleet = [
        {
            "url": f"http://127.0.0.1:9/{number}",
            "name": f"gpu-{number:02}:8001",
            "models": list(MODELS),
            "max_num_seqs": 64,
        }
        for number in range(replicas)
    ]
    never = {"interval": 3600.0}
    return Settings.model_validate(
        {"port": 0, "admin": {"port": 0}, "replicas": fleet, "scrape": never, "health": never}
    )


async def get(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """The page, over a socket of this process: the client's share is in the cost."""
    writer.write(GET)
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    return await reader.readexactly(int(length.split(b":")[1]))


def samples(page: bytes) -> int:
    """Lines that carry a value."""
    return sum(not line.startswith(b"#") for line in page.splitlines())


@contextmanager
def timed(costs: dict[str, list[float]], name: str) -> Iterator[None]:
    """Note the CPU time of this process."""
    before = time.process_time_ns()
    yield
    costs.setdefault(name, []).append((time.process_time_ns() - before) / 1e6)


def fill(router: Router) -> None:
    """As after hours of traffic: every row of every counter and histogram is there, all replicas are busy."""
    random = Random(1)
    for number, replica in enumerate(router.fleet):
        router.fleet.tell(replica, Event.PASSED, "busy")
        fill_replica(router, replica, number, random)
    metrics, ledger = router.metrics, router.ledger
    for model in MODELS:
        for series in (metrics.queue, metrics.ttft, metrics.answer_ttft):
            observe(series.of((model,)).observe, random)
        for kind in ("prompt", "cached", "completion"):
            metrics.tokens.add((model, kind), random.randrange(10**9))
    for endpoint in ENDPOINTS:
        for outcome in OUTCOMES:
            observe(metrics.request.of((endpoint, outcome)).observe, random)
            ledger.finished.add((endpoint, "other", "", outcome), random.randrange(10**6))
    for policy in ("prefix-cache", "least-outstanding"):
        for result in ("hit", "new", "spill", "rehash", "none"):
            metrics.affinity.add((policy, result), random.randrange(10**6))
            metrics.shadow.add((policy, result), random.randrange(10**6))
    for reason in ("queue_full", "queue_timeout", "overloaded"):
        metrics.shed.add((reason,), 5)
        ledger.retries.add((reason,), 5)


def fill_replica(router: Router, replica: Replica, number: int, random: Random) -> None:
    """One replica's share."""
    metrics, ledger, name = router.metrics, router.ledger, replica.name
    replica.engine, replica.engine_version = "vllm", "0.32.0"
    replica.take(
        EngineReading(
            running=STREAMS,
            waiting=0,
            kv_usage=random.random(),
            preemptions=random.randrange(1000),
            prefix_queries=random.randrange(10**9),
            prefix_hits=random.randrange(10**8),
            spec_accept_length=1 + random.random(),
            spec_draft_length=3,
            steps=random.randrange(10**7),
            model=MODELS[0],
            cache_dtype="fp8_e4m3",
            missing=("vllm:iteration_tokens_total_count",),
        ),
        time.monotonic(),
    )
    for series in (metrics.connect, metrics.upstream_ttft, metrics.gaps):
        observe(series.of((name,)).observe, random)
    for endpoint in ENDPOINTS[:3]:
        for model in MODELS:
            for outcome in OUTCOMES:
                ledger.finished.add((endpoint, model, name, outcome), random.randrange(10**6))
    for result in OUTCOMES:
        ledger.attempts.add((name, result), random.randrange(10**6))
    ledger.ejections.add((name, "connect_failed"), 3)
    metrics.routed_characters.add(("prefix-cache", name), random.randrange(10**12))
    for stream in range(STREAMS):
        exchange = Exchange(method="POST", path=ENDPOINTS[0], endpoint=ENDPOINTS[0], accepted_at=1.0)
        exchange.replica, exchange.stage = name, Stage.STREAMING
        exchange.sent_at = exchange.last_byte_at = time.monotonic()
        ledger.in_flight[f"{number}-{stream}"] = exchange
    ledger.cells[replica.row + Stage.STREAMING] = ledger.cells[replica.row + OUTSTANDING] = STREAMS


def observe(take: Callable[[float], None], random: Random) -> None:
    """Some values in every bucket."""
    for _ in range(200):
        take(random.lognormvariate(-3.0, 2.0))


if __name__ == "__main__":
    raise SystemExit(main())
