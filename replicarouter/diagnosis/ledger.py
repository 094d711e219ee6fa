"""Where every request was at the last look, beside what the engines say, as one document."""

from typing import Any

from replicarouter.diagnosis.case import Case, in_flight
from replicarouter.diagnosis.snapshot import Snapshot
from replicarouter.diagnosis.verdict import Expectations
from replicarouter.diagnosis.window import Window

STAGES = ("receiving", "queued", "connecting", "sent", "streaming")


def ledger(window: Window) -> dict[str, Any]:
    """The last page's stages, which add up to `accepted`, and a row for each replica. What an engine has not
    told lately is None."""
    last = window.last
    by_stage = last.by("stage", "requests_outstanding")
    busy, open_idle = (last.total("connector_connections", state=state) for state in ("busy", "idle"))
    return {
        "receiving": _count(last.total("requests_receiving")),
        "queued": _count(last.total("requests_queued")),
        **{stage: _count(by_stage.get(stage, 0.0)) for stage in STAGES[2:]},
        "accepted": _count(in_flight(last)),
        "received_total": _count(last.total("requests_received_total")),
        "finished_total": _count(last.total("requests_total")),
        "running": _count(last.value("engine_requests_running")),
        "waiting": _count(last.value("engine_requests_waiting")),
        "unexplained": _count(last.value("requests_unexplained")),
        "connector": {
            "limit": _count(last.value("connector_limit")),
            "waiting": _count(last.total("connector_waiting")),
            "busy": _count(busy),
            "idle": _count(open_idle),
        },
        "replicas": _rows(window, last),
    }


def _rows(window: Window, last: Snapshot) -> list[dict[str, Any]]:
    stages = {stage: last.by("replica", "requests_outstanding", stage=stage) for stage in STAGES[2:]}
    told = {
        "running": last.by("replica", "engine_requests_running"),
        "waiting": last.by("replica", "engine_requests_waiting"),
        "unexplained": last.by("replica", "requests_unexplained"),
    }
    kv = last.by("replica", "engine_kv_usage_ratio")
    ages = last.by("replica", "engine_scrape_age_seconds")
    return [
        {
            "name": member.name,
            "state": member.state,
            **{stage: _count(found.get(member.name, 0.0)) for stage, found in stages.items()},
            "outstanding": _count(sum(found.get(member.name, 0.0) for found in stages.values())),
            **{name: _count(found.get(member.name)) for name, found in told.items()},
            "kv_usage": kv.get(member.name),
            "reading_age": ages.get(member.name),
        }
        for member in Case(window, Expectations()).members
    ]


def _count(value: float | None) -> int | float | None:
    return int(value) if value is not None and value.is_integer() else value
