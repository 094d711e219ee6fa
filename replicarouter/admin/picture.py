"""All that the status page shows, as one document: the ledger and its rates at this moment, and every other
second what the metrics say together with the verdicts on them."""

import time
from collections import deque
from collections.abc import Callable
from typing import Any

import orjson

from replicarouter.admin.pace import WHOLE, Pace
from replicarouter.admin.snapshots import without_buckets
from replicarouter.diagnosis.judge import diagnose
from replicarouter.diagnosis.snapshot import Snapshot
from replicarouter.diagnosis.window import Window
from replicarouter.telemetry.collector import RouterCollector, Sources
from replicarouter.telemetry.recent import RecentErrors
from replicarouter.telemetry.report import ledger_report

JUDGED_EVERY = 1.9
"""Seconds between two verdicts, a little less than two documents are apart."""

SNAPSHOTS = 4
"""Readings of the metrics that a verdict rests on."""

ERRORS = 20
"""Recent errors on the page; `GET /admin/errors` has them all."""

_FACTS = {
    "queue_limit": "queue_limit",
    "queue_timeout": "queue_timeout_seconds",
    "open_fds": "process_open_fds",
    "max_fds": "process_max_fds",
    "memory": "process_resident_memory_bytes",
    "client_connections": "client_connections",
}
"""What the page tells of the router, by the series that says it."""

_REPLICA_FACTS = {
    "limit": "replica_outstanding_limit",
    "max_num_seqs": "replica_max_num_seqs",
    "silence": "replica_silence_seconds",
    "preemptions": "engine_preemptions_total",
}


class Picture:
    """Draws the document. `draining`: whether the router shuts down; `cpu` tells CPU seconds used, `wall`
    the time of day."""

    def __init__(
        self,
        sources: Sources,
        recent: RecentErrors,
        *,
        draining: Callable[[], bool],
        cpu: Callable[[], float] = time.process_time,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._sources = sources
        self._recent = recent
        self._draining = draining
        self._wall = wall
        self._collector = RouterCollector(sources)
        self._pace = Pace(sources, cpu)
        self._born = wall()
        self._snapshots: deque[Snapshot] = deque(maxlen=SNAPSHOTS)
        self._verdicts: list[dict[str, Any]] = []

    @property
    def judged_at(self) -> float:
        """When the metrics were read last, on the router's clock."""
        return self._snapshots[-1].at

    def begin(self) -> None:
        """Somebody begins to look: what was before is too long ago to compare with."""
        self._pace.forget()
        self._snapshots.clear()
        self._judge()

    def draw(self) -> bytes:
        """The document of this moment, as JSON in one line."""
        if self._sources.clock() - self.judged_at >= JUDGED_EVERY:
            self._judge()
        return orjson.dumps(self.document())

    def document(self) -> dict[str, Any]:
        """The document of this moment. Times are in seconds."""
        sources, facts = self._sources, self._snapshots[-1]
        now = sources.clock()
        pace = self._pace.look()
        ledger = ledger_report(sources)
        replicas = ledger.pop("replicas")
        rows = {name: facts.by("replica", series) for name, series in _REPLICA_FACTS.items()}
        for row in replicas:
            row.update({name: values.get(row["name"]) for name, values in rows.items()})
            row["ttft"] = pace["ttft"].get(row["name"])
            row["itl"] = pace["itl"].get(row["name"])
        return {
            "at": self._wall(),
            "router": {
                "version": sources.version,
                "born": self._born,
                "draining": self._draining(),
                "ready": any(pool.ready for pool in sources.fleet.pools.values()),
                "policies": {row["model"]: row["policy"] for row, _ in facts.rows("policy_info")},
                "cpu": pace["cpu"],
                "lag": sources.lag(),
                **{name: facts.value(series) for name, series in _FACTS.items()},
            },
            "ledger": ledger,
            "queued": {model: sources.ledger.queued.get(model, 0) for model in sources.fleet.pools},
            "longest_hold": sources.ledger.longest_hold(now),
            "received_rate": pace["received"],
            "ended_rate": pace["ended"],
            "ttft": pace["ttft"][WHOLE],
            "itl": pace["itl"][WHOLE],
            "affinity": facts.by("result", "affinity_total"),
            "replicas": replicas,
            "verdicts": self._verdicts,
            "errors": self._recent.failures(now, ERRORS),
            "departed": self._recent.departed(now),
        }

    def _judge(self) -> None:
        families = without_buckets(self._collector.families())
        self._snapshots.append(Snapshot.of(families, self._sources.clock()))
        verdicts = diagnose(Window(list(self._snapshots)))
        self._verdicts = [verdict.document() for verdict in verdicts]
