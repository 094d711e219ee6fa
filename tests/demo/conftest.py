"""Readings of a ledger as a router would give them."""

from collections.abc import Callable
from typing import Any

import pytest

from replicarouter.demo.ledger import LedgerReading, ReplicaRow

MakeReading = Callable[..., LedgerReading]


@pytest.fixture
def reading() -> MakeReading:
    """Make a reading of one replica with `connecting`, `sent`, `streaming`, `running`, `waiting`, …"""

    def make(
        *,
        connecting: int = 0,
        sent: int = 0,
        streaming: int = 0,
        running: float | None = None,
        waiting: float | None = 0.0,
        queued: int = 0,
        limit: int = 0,
        **fields: Any,
    ) -> LedgerReading:
        row = ReplicaRow(
            name="127.0.0.1:8001",
            state="ready",
            connecting=connecting,
            sent=sent,
            streaming=streaming,
            outstanding=connecting + sent + streaming,
            running=running,
            waiting=waiting,
            kv_usage=None if running is None else 0.125,
            reading_age=None if running is None else 0.4,
        )
        stages = {
            "receiving": 0,
            "queued": queued,
            "connecting": connecting,
            "sent": sent,
            "streaming": streaming,
        }
        values: dict[str, Any] = {
            "stages": stages,
            "accepted": sum(stages.values()),
            "connector_limit": limit,
            "connector_waiting": connecting if limit else 0,
            "proxy_limited": False,
            "unexplained": None,
            "received": sum(stages.values()),
            "finished": {"ok": 0},
            "replicas": (row,),
        }
        return LedgerReading(**{**values, **fields})

    return make
