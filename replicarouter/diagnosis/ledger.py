"""Where every request was at a look, beside what the engines say, as one document."""

from typing import Any

from replicarouter.diagnosis.case import in_flight, states_of
from replicarouter.diagnosis.snapshot import Snapshot

STAGES = ("receiving", "queued", "connecting", "sent", "streaming")


def ledger(page: Snapshot) -> dict[str, Any]:
    """The page's stages, which add up to `accepted`, and a row for each replica. What an engine has not told
    lately is None."""
    by_stage = page.by("stage", "requests_outstanding")
    busy, open_idle = (page.total("connector_connections", state=state) for state in ("busy", "idle"))
    return {
        "receiving": _count(page.total("requests_receiving")),
        "queued": _count(page.total("requests_queued")),
        **{stage: _count(by_stage.get(stage, 0.0)) for stage in STAGES[2:]},
        "accepted": _count(in_flight(page)),
        "received_total": _count(page.total("requests_received_total")),
        "finished_total": _count(page.total("requests_total")),
        "running": _count(page.value("engine_requests_running")),
        "waiting": _count(page.value("engine_requests_waiting")),
        "unexplained": _count(page.value("requests_unexplained")),
        "connector": {
            "limit": _count(page.value("connector_limit")),
            "waiting": _count(page.total("connector_waiting")),
            "busy": _count(busy),
            "idle": _count(open_idle),
        },
        "replicas": _rows(page),
    }


def _rows(page: Snapshot) -> list[dict[str, Any]]:
    stages = {stage: page.by("replica", "requests_outstanding", stage=stage) for stage in STAGES[2:]}
    told = {
        "running": page.by("replica", "engine_requests_running"),
        "waiting": page.by("replica", "engine_requests_waiting"),
        "unexplained": page.by("replica", "requests_unexplained"),
    }
    kv = page.by("replica", "engine_kv_usage_ratio")
    ages = page.by("replica", "engine_scrape_age_seconds")
    return [
        {
            "name": name,
            "state": state,
            **{stage: _count(found.get(name, 0.0)) for stage, found in stages.items()},
            "outstanding": _count(sum(found.get(name, 0.0) for found in stages.values())),
            **{count: _count(found.get(name)) for count, found in told.items()},
            "kv_usage": kv.get(name),
            "reading_age": ages.get(name),
        }
        for name, state in sorted(states_of(page).items())
    ]


def _count(value: float | None) -> int | float | None:
    return int(value) if value is not None and value.is_integer() else value
