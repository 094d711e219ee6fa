"""The router's ledger and its metrics, as its admin port tells them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

from replicarouter.diagnosis.ledger import STAGES

READ_TIMEOUT = 5.0


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    """One replica: our counts, then its engine's; those are None without a fresh reading."""

    name: str
    state: str
    connecting: int
    sent: int
    streaming: int
    outstanding: int
    running: float | None
    waiting: float | None
    kv_usage: float | None
    reading_age: float | None


@dataclass(frozen=True, slots=True)
class LedgerReading:
    """One look at the ledger. `finished` counts by outcome; `stages` has the names of `STAGES`."""

    stages: Mapping[str, int]
    accepted: int
    connector_limit: int
    connector_waiting: int
    proxy_limited: bool
    unexplained: float | None
    received: int
    finished: Mapping[str, int]
    replicas: tuple[ReplicaRow, ...]

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "LedgerReading":
        """From the JSON of `GET /admin/ledger`."""
        fields = ReplicaRow.__dataclass_fields__
        return cls(
            stages={stage: document[stage] for stage in STAGES},
            accepted=document["accepted"],
            connector_limit=document["connector"]["limit"],
            connector_waiting=document["connector"]["waiting"],
            proxy_limited=document["proxy_limited"],
            unexplained=document["unexplained"],
            received=document["received_total"],
            finished=document["finished"],
            replicas=tuple(
                ReplicaRow(**{name: row[name] for name in fields}) for row in document["replicas"]
            ),
        )

    @property
    def running(self) -> float | None:
        """What the engines say they run, in all; None when one of them has not said."""
        return _sum(row.running for row in self.replicas)

    @property
    def waiting(self) -> float | None:
        """What the engines say is waiting in them, in all; None when one of them has not said."""
        return _sum(row.waiting for row in self.replicas)

    @property
    def ended(self) -> int:
        """Requests that have finished, whatever their outcome."""
        return sum(self.finished.values())


def _sum(values: Iterable[float | None]) -> float | None:
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total


class LedgerReader:
    """Reads what the admin port at `url` tells; use it as an asynchronous context manager."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._session: aiohttp.ClientSession

    async def __aenter__(self) -> "LedgerReader":
        self._session = aiohttp.ClientSession(
            trust_env=False, timeout=aiohttp.ClientTimeout(total=READ_TIMEOUT)
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def read(self) -> LedgerReading | None:
        """Look once; None when the router does not answer."""
        content = await self._get("/admin/ledger")
        return None if content is None else LedgerReading.from_document(orjson.loads(content))

    async def page(self) -> str | None:
        """Its metrics; None when the router does not answer."""
        content = await self._get("/metrics")
        return None if content is None else content.decode()

    async def _get(self, path: str) -> bytes | None:
        try:
            async with self._session.get(self._url + path) as answer:
                return await answer.read() if answer.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None
