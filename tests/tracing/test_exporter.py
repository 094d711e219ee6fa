"""Spans over real OTLP: the tree of each request, and what a bad collector costs, which is nothing."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from replicarouter.exchange import Exchange
from replicarouter.fleet.ledger import Ledger
from replicarouter.fleet.registry import Fleet
from replicarouter.protocol.traceparent import Trace
from replicarouter.settings import TracingSettings
from replicarouter.tracing.exporter import BATCH, MOST_WAITING, Exporter
from replicarouter.tracing.places import Places
from tests.fakes.collector import FakeCollector, answering, raw_collector
from tests.fakes.running import free_port
from tests.fakes.wire import eventually
from tests.scene import an_exchange

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


def open_exporter(endpoint: str, **options: str) -> Exporter:
    settings = TracingSettings.model_validate({"otlp_endpoint": endpoint, **options})
    return Exporter(settings, Places(Fleet([], Ledger())), version="1.2", clock=time.monotonic)


def an_ended(*, recorded: bool = True, **fields: Any) -> Exchange:
    trace = Trace(TRACE, "00f067aa0ba902b7", recorded=recorded)
    now = time.monotonic()
    usual = {"trace": trace, "accepted_at": now - 1, "ended_at": now, "outcome": "ok", "status": 200}
    return an_exchange(**{**usual, **fields})


async def until_over(exporter: Exporter) -> None:
    """Wait for a thread that `close` has not waited for; it may have something to say."""
    await eventually(lambda: not exporter._thread.is_alive(), "the thread ends", deadline=20)


async def test_spans_carry_the_service_and_come_by_themselves() -> None:
    async with FakeCollector() as collector:
        exporter = open_exporter(collector.endpoint, service_name="edge")
        before = time.time()
        exporter.observe(an_ended())
        (span,) = (await collector.trace(1))["POST /v1/chat/completions"]
        await asyncio.to_thread(exporter.close, 5)
    assert span.resource["service.name"] == "edge"
    assert span.resource["service.version"] == "1.2"
    assert before - 1.5 <= span.begin < span.end <= time.time()


async def test_requests_that_are_not_sampled_make_no_spans() -> None:
    async with FakeCollector() as collector:
        exporter = open_exporter(collector.endpoint)
        exporter.observe(an_ended(recorded=False))
        exporter.observe(an_ended())
        await asyncio.to_thread(exporter.close, 5)
        assert len([span for span in collector.spans if span.kind == "SERVER"]) == 1


async def test_what_waits_at_the_end_is_exported_in_batches() -> None:
    async with FakeCollector() as collector:
        exporter = open_exporter(collector.endpoint)
        for _ in range(100):
            exporter.observe(an_ended())
        await asyncio.to_thread(exporter.close, 10)
        assert len([span for span in collector.spans if span.kind == "SERVER"]) == 100
        assert 100 / BATCH <= len(collector.bodies) <= 100 / BATCH + 5
    assert exporter.dropped == 0


async def test_a_collector_that_hangs_delays_neither_requests_nor_the_end() -> None:
    async with FakeCollector(hangs=True) as collector:
        exporter = open_exporter(collector.endpoint)
        exporter.observe(an_ended())
        await eventually(lambda: collector.bodies, "a batch is on its way")
        began = time.monotonic()
        for _ in range(MOST_WAITING + 10):
            exporter.observe(an_ended())
        assert exporter.dropped == 10
        await asyncio.to_thread(exporter.close, 0.5)
        assert time.monotonic() - began < 2.5
    await until_over(exporter)


@pytest.mark.parametrize(("status", "times"), [(404, 3), (0, 1)], ids=["refuses", "is-not-there"])
async def test_a_bad_collector_is_told_once(
    status: int, times: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with FakeCollector(status=status) as collector:
        endpoint = collector.endpoint if status else f"http://127.0.0.1:{free_port()}"
        exporter = open_exporter(endpoint)
        for _ in range(times):
            lost = exporter.dropped
            exporter.observe(an_ended())
            await eventually(lambda: exporter.dropped > lost, "spans are lost", deadline=20)  # noqa: B023
        await asyncio.to_thread(exporter.close, 5)
    (warning,) = caplog.records
    assert (warning.levelno, warning.getMessage()) == (logging.WARNING, "spans not taken by the collector")
    assert warning.__dict__["why"]


async def test_a_path_of_the_endpoint_is_kept() -> None:
    async with FakeCollector() as collector:
        exporter = open_exporter(f"{collector.endpoint}/v1/traces")
        exporter.observe(an_ended())
        await collector.trace(1)
        await asyncio.to_thread(exporter.close, 5)


async def test_proxies_of_the_environment_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=a")
    async with FakeCollector() as collector:
        exporter = open_exporter(collector.endpoint)
        exporter.observe(an_ended())
        await collector.trace(1)
        await asyncio.to_thread(exporter.close, 5)
        assert collector.headers[0]["x-tenant"] == "a"


async def test_a_redirect_loses_the_spans_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    answer = b"HTTP/1.1 307 Moved\r\nLocation: http://other.example/v1/traces\r\nContent-Length: 0\r\n\r\n"
    async with raw_collector(answering(answer)) as collector:
        exporter = open_exporter(collector.endpoint)
        for _ in range(BATCH):
            exporter.observe(an_ended())
        await eventually(lambda: exporter.dropped == BATCH, "spans are lost")
        await asyncio.to_thread(exporter.close, 5)
    (warning,) = caplog.records
    assert warning.getMessage() == "spans not taken by the collector"
    assert "redirects to other.example (307)" in warning.__dict__["why"]


async def test_a_collector_that_trickles_holds_up_neither_the_next_spans_nor_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("replicarouter.tracing.exporter.ANSWER", 0.5)
    answer = answering(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", b"x", again=0.05)
    async with raw_collector(answer) as collector:
        exporter = open_exporter(collector.endpoint)
        for _ in range(3 * BATCH):
            exporter.observe(an_ended())
        await eventually(lambda: collector.requests >= 2, "the next spans are sent")
        began = time.monotonic()
        await asyncio.to_thread(exporter.close, 0.1)
        assert time.monotonic() - began < 0.5
    await until_over(exporter)


ODD_ANSWERS = {
    "garbage": b"\xff\xff\xff\r\n",
    "bad-length": b"HTTP/1.1 200 x\r\nContent-Length: abc\r\n\r\n",
    "many-fields": b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 1000 + b"\r\n",
    "odd-fields": b"HTTP/1.1 500 \xff\r\n\xff\r\n \x00: \x1b\r\nContent-Length: 2\r\n\r\n\xff\xff",
    "retry-after": b"HTTP/1.1 503 x\r\nRetry-After: 1e99\r\nContent-Length: 0\r\n\r\n",
}


@pytest.mark.parametrize("case", ODD_ANSWERS)
async def test_no_answer_ends_the_thread_or_is_told_twice(
    case: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("replicarouter.tracing.exporter.ANSWER", 0.5)
    async with raw_collector(answering(ODD_ANSWERS[case])) as collector:
        exporter = open_exporter(collector.endpoint)
        for times in (1, 2):
            exporter.observe(an_ended())
            await eventually(lambda: collector.requests >= times, "spans are sent")  # noqa: B023
        await asyncio.to_thread(exporter.close, 5)
    assert len(caplog.records) <= 1


async def test_a_request_whose_spans_cannot_be_made_costs_no_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    odd = {"accepted_at": float("nan")}, {"ended_at": float("inf")}, {"method": None}, {"past": (None,)}
    async with FakeCollector() as collector:
        exporter = open_exporter(collector.endpoint)
        for _ in range(2):
            for fields in odd:
                exporter.observe(an_ended(**fields))
                exporter.observe(an_ended(path="/\udcff"))
            await eventually(lambda: not exporter._waiting, "all are taken")
        await eventually(lambda: exporter.dropped == 2 * len(odd), "they are counted")
        await asyncio.to_thread(exporter.close, 5)
        assert len([span for span in collector.spans if span.kind == "SERVER"]) == 2 * len(odd)
    (warning,) = caplog.records
    assert (warning.levelno, warning.getMessage()) == (logging.WARNING, "spans not made")
    assert warning.__dict__["why"].startswith("ValueError: ")


async def test_spans_that_cannot_be_encoded_cost_their_batch_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with FakeCollector() as collector:
        exporter = open_exporter(collector.endpoint)
        exporter.observe(an_ended(trace=Trace("f" * 40, "0" * 16, recorded=True)))
        await eventually(lambda: exporter.dropped == 1, "it is counted")
        exporter.observe(an_ended())
        await collector.trace(1)
        await asyncio.to_thread(exporter.close, 5)
    (warning,) = caplog.records
    assert warning.getMessage() == "spans not taken by the collector"
