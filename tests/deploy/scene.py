"""A real Prometheus with the files of `deploy/prometheus` beside two routers at work. Everything is asked of
it once, and then they are gone."""

import asyncio
import re
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from tests.deploy.fleets import KEY, TROUBLED, WELL, Fleets, fleets
from tests.deploy.rules import PROMETHEUS
from tests.fakes.client import HOST
from tests.fakes.programs import program
from tests.fakes.running import free_port
from tests.fakes.wire import eventually

SCRAPE = "400ms"
DEADLINE = 15.0
"""Seconds within which everything that is asked has an answer."""

EXPECTED = {f"Replicarouter{name}" for name in ("ProxyLimited", "Errors", "Shedding", "ReplicaOut")}
"""The alerts that the router in trouble must raise."""

ASKED_BADLY = (
    f'sum(rate(replicarouter_requests_total{{instance="{WELL}",outcome="upstream_error"}}[1m]))'
    f' / sum(rate(replicarouter_requests_total{{instance="{WELL}"}}[1m])) > 0.05'
)
"""Has an answer when so many requests to the router that is well are refused by an engine that an alert would
fire, if that were not their clients' fault."""

OF_THE_MACHINE = ("ReplicarouterCpuBusy", "ReplicarouterEventLoopLag")
"""Alerts that a busy machine raises by itself: they keep their time."""

RECORDED_OF_ALL = "replicarouter:requests:by_stage"
"""A recorded series that every router has from the first reading on."""

Vector = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Seen:
    """What Prometheus said: the answer to each query (the last one, of those that stayed empty), alerts that
    fired at any time by name and router, those that fire at the end, and the rules as it runs them."""

    answers: dict[str, Vector]
    fired: set[tuple[str, str]]
    firing: list[dict[str, Any]]
    rules: list[dict[str, Any]]
    targets: list[dict[str, Any]]

    def firing_at(self, instance: str, name: str) -> dict[str, Any]:
        """The alert of this name at this router; there must be one."""
        found = [
            alert
            for alert in self.firing
            if (alert["labels"]["alertname"], alert["labels"].get("instance")) == (name, instance)
        ]
        assert found, (name, instance, sorted(self.fired))
        return found[0]


def watch(folder: Path, queries: Iterable[str]) -> Seen:
    """Run everything and ask `queries` until each has an answer, or the time is up."""
    path = program("prometheus", "prometheus")
    return asyncio.run(_watch(path, folder, list(queries)))


async def _watch(path: str, folder: Path, queries: list[str]) -> Seen:
    async with fleets(folder) as both:
        config = _configured(folder / "prometheus", both)
        async with _prometheus(path, config) as prometheus:
            await both.ready()
            async with both.busy():
                await prometheus.knows(WELL, TROUBLED)
                return await prometheus.see(queries)


@dataclass(slots=True)
class _Prometheus:
    """What may be asked of it."""

    session: aiohttp.ClientSession
    url: str
    answers: dict[str, Vector] = field(default_factory=dict)
    since: float = 0.0

    async def ask(self, path: str, **parameters: str) -> Any:
        async with self.session.get(f"{self.url}{path}", params=parameters) as response:
            document = await response.json()
        assert document["status"] == "success", (parameters, document)
        return document["data"]

    async def query(self, expression: str) -> Vector:
        data = await self.ask("/api/v1/query", query=expression)
        assert data["resultType"] == "vector", (expression, data)
        return list(data["result"])

    async def ready(self) -> bool:
        try:
            async with self.session.get(f"{self.url}/-/ready") as response:
                return response.status == 200
        except aiohttp.ClientConnectionError:
            return False

    async def knows(self, *instances: str) -> None:
        """Wait until it has read these routers and recorded of each, and no alert stands from before."""
        wanted = {(instance, "1") for instance in instances}

        async def settled() -> bool:
            rows = await self.query('up{job="replicarouter"}')
            if {(row["metric"]["instance"], row["value"][1]) for row in rows} != wanted:
                return False
            recorded = await self.query(RECORDED_OF_ALL)
            if {row["metric"]["instance"] for row in recorded} != set(instances):
                return False
            return not await self.query('ALERTS{alertname="ReplicarouterDown"}')

        await eventually(settled, f"{instances} are read", deadline=DEADLINE)
        self.since = time.monotonic()

    async def see(self, queries: list[str]) -> Seen:
        """Ask until everything has an answer and the alerts that must fire do."""
        pending = set(queries)

        async def answered() -> bool:
            for expression in sorted(pending):
                self.answers[expression] = await self.query(expression)
                if any(finite(row) for row in self.answers[expression]):
                    pending.discard(expression)
            rows = await self.query(f'ALERTS{{alertstate="firing",instance="{TROUBLED}"}}')
            return not pending and {row["metric"]["alertname"] for row in rows} >= EXPECTED

        await _until(answered)
        groups = (await self.ask("/api/v1/rules"))["groups"]
        span = max(1, int(time.monotonic() - self.since))
        rows = await self.query(f'count_over_time(ALERTS{{alertstate="firing"}}[{span}s])')
        return Seen(
            self.answers,
            {(row["metric"]["alertname"], row["metric"].get("instance", "")) for row in rows},
            [one for one in (await self.ask("/api/v1/alerts"))["alerts"] if one["state"] == "firing"],
            [rule for group in groups for rule in group["rules"]],
            list((await self.ask("/api/v1/targets"))["activeTargets"]),
        )


def finite(row: dict[str, Any]) -> bool:
    """Whether the value is a number that can be shown."""
    return row["value"][1] not in {"NaN", "+Inf", "-Inf"}


async def _until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Ask for a while; what has no answer by then is for the tests to tell."""
    try:
        async with asyncio.timeout(DEADLINE):
            while not await condition():
                await asyncio.sleep(0.2)
    except TimeoutError:
        return


def _configured(folder: Path, both: Fleets) -> Path:
    """A copy of the files that looks often, knows these addresses and shows its key."""
    shutil.copytree(PROMETHEUS, folder)
    config = folder / "prometheus.yml"
    text = config.read_text()
    for name in ("scrape_interval", "evaluation_interval"):
        text = replaced(text, f"{name}: 5s", f"{name}: {SCRAPE}")
    config.write_text(with_key(text))
    (folder / "replicarouter.token").write_text(KEY + "\n")
    routers = ((WELL, both.well.port), (TROUBLED, both.troubled.port))
    targets = [f'- {{targets: ["{HOST}:{port}"], labels: {{instance: {name}}}}}' for name, port in routers]
    (folder / "targets" / "router.yml").write_text("\n".join(targets))
    (folder / "targets" / "engines.yml").write_text(f'- targets: ["{HOST}:{both.engine}"]')
    alerts = folder / "alerts.yml"
    alerts.write_text(hasty(alerts.read_text()))
    return config


def replaced(text: str, old: str, new: str) -> str:
    """With `new` in the place of `old`, which must be there once."""
    assert text.count(old) == 1, (old, text)
    return text.replace(old, new)


def with_key(config: str) -> str:
    """The configuration as its own comment says for a router that has keys."""
    return replaced(
        config,
        "    # authorization:\n    #   credentials_file: replicarouter.token\n",
        "    authorization:\n      credentials_file: replicarouter.token\n",
    )


def hasty(alerts: str) -> str:
    """The same alerts after a second."""
    parts = re.split(r"(?=^      - alert: )", alerts, flags=re.MULTILINE)
    slow = tuple(f"      - alert: {name}\n" for name in OF_THE_MACHINE)
    return "".join(
        part
        if part.startswith(slow)
        else re.sub(r"^        for: \w+$", "        for: 1s", part, flags=re.MULTILINE)
        for part in parts
    )


@asynccontextmanager
async def _prometheus(path: str, config: Path) -> AsyncIterator[_Prometheus]:
    port = free_port()
    with config.with_name("log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(path, f"--config.file={config}", f"--storage.tsdb.path={config.with_name('data')}"),
            *(f"--web.listen-address={HOST}:{port}", "--log.level=warn"),
            stdout=log,
            stderr=log,
        )
    try:
        async with aiohttp.ClientSession() as session:
            prometheus = _Prometheus(session, f"http://{HOST}:{port}")
            await eventually(prometheus.ready, "Prometheus is ready", deadline=DEADLINE)
            yield prometheus
    finally:
        process.terminate()
        await process.wait()
