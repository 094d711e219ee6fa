"""The ledger, replicas and requests as documents."""

import json
from collections.abc import Callable

import orjson

from replicarouter.engines.base import EngineReading
from replicarouter.exchange import Stage
from replicarouter.fleet.ledger import OUTSTANDING
from replicarouter.fleet.lifecycle import Event
from replicarouter.telemetry.report import ledger_report, replica_report, request_report
from tests.scene import a_fleet, an_exchange, replica_settings
from tests.telemetry.conftest import Watched


def test_a_quiet_router_reports_zeros(watched: Watched) -> None:
    report = ledger_report(watched.sources)

    for stage in ("receiving", "queued", "connecting", "sent", "streaming", "accepted", "received_total"):
        assert report[stage] == 0
    assert report["connector"] == {"limit": 2048, "waiting": 0, "busy": 0, "idle": 0}
    assert report["finished"] == {"ok": 0}
    assert report["ttft"] == {"count": 0, "p50": None, "p90": None}
    assert (report["proxy_limited"], report["unexplained"]) == (False, None)
    assert [row["name"] for row in report["replicas"]] == ["a", "b"]


def test_the_stages_add_up_to_what_is_accepted(watched: Watched) -> None:
    ledger = watched.fleet.ledger
    for replica in watched.fleet:
        ledger.cells[replica.row + Stage.CONNECTING] = 1
        ledger.cells[replica.row + Stage.SENT] = 2
        ledger.cells[replica.row + Stage.STREAMING] = 3
    ledger.receiving = 4
    ledger.queued["m1"] = 5
    report = ledger_report(watched.sources)

    assert {stage.label: report[stage.label] for stage in Stage} == {
        "connecting": 2,
        "sent": 4,
        "streaming": 6,
        "receiving": 4,
        "queued": 5,
    }
    assert report["accepted"] == 21


def test_endings_are_added_up_by_outcome(watched: Watched) -> None:
    finished = watched.fleet.ledger.finished
    finished.add(("/v1/chat/completions", "m1", "a", "ok"), 2)
    finished.add(("/v1/embeddings", "m1", "b", "ok"), 3)
    finished.add(("other", "", "", "unknown_path"), 1)
    watched.fleet.ledger.arrived.add(("/v1/chat/completions",), 6)
    report = ledger_report(watched.sources)

    assert report["finished"] == {"ok": 5, "unknown_path": 1}
    assert report["received_total"] == 6


def test_connections_are_added_up(watched: Watched) -> None:
    for replica in watched.fleet:
        counts = watched.fleet.ledger.connections_of(replica.row)
        counts.open, counts.busy = 5, 3
    watched.fleet.ledger.waiting_for_slot = 7

    connector = ledger_report(watched.sources)["connector"]
    assert connector == {"limit": 2048, "waiting": 7, "busy": 6, "idle": 4}


def test_the_time_to_first_token_is_over_all_models(watched: Watched) -> None:
    watched.metrics.ttft.of(("m1",)).observe(0.02)
    watched.metrics.ttft.of(("m2",)).observe(0.02)
    ttft = ledger_report(watched.sources)["ttft"]

    assert ttft["count"] == 2
    assert 0 < ttft["p50"] < ttft["p90"] <= 0.025


def test_what_is_unexplained_is_summed_over_those_who_say(watched: Watched) -> None:
    one, other = watched.fleet
    watched.fleet.ledger.cells[one.row + Stage.SENT] = 5
    one.take(EngineReading(running=2, waiting=0), watched.clock())
    other.take(EngineReading(), watched.clock())
    report = ledger_report(watched.sources)

    assert report["unexplained"] == 3
    assert [row["unexplained"] for row in report["replicas"]] == [3, None]


def test_a_held_request_beside_an_idle_engine_is_told(watched: Watched) -> None:
    for replica in watched.fleet:
        replica.take(EngineReading(running=1, waiting=0), watched.clock())
    watched.fleet.ledger.hold(an_exchange(), watched.clock() - 1)

    assert ledger_report(watched.sources)["proxy_limited"] is True


def test_a_replica_is_described_with_its_counts_and_its_engines(watch: Callable[..., Watched]) -> None:
    settings = replica_settings("a", weight=2, labels={"rack": "7"})
    watched = watch(a_fleet(settings, models=("m1", "m2")))
    (replica,) = watched.fleet
    cells = watched.fleet.ledger.cells
    cells[replica.row + Stage.SENT], cells[replica.row + OUTSTANDING] = 2, 2
    replica.take(EngineReading(running=1, waiting=1, kv_usage=0.5), watched.clock())
    replica.engine, replica.engine_version = "vllm", "1.0"
    watched.clock.move(2)

    assert replica_report(replica, watched.sources, watched.clock()) == {
        "name": "a",
        "url": "http://a.invalid:8000",
        "state": "ready",
        "why": "said so",
        "health": "ready",
        "duty": "active",
        "origin": "file",
        "ejected_until": None,
        "trial": False,
        "cooling": False,
        "stalled": False,
        "models": ["m1", "m2"],
        "weight": 2.0,
        "share": 2.0,
        "role": "both",
        "labels": {"rack": "7"},
        "engine": "vllm",
        "engine_version": "1.0",
        "connecting": 0,
        "sent": 2,
        "streaming": 0,
        "outstanding": 2,
        "running": 1,
        "waiting": 1,
        "kv_usage": 0.5,
        "reading_age": 2.0,
        "unexplained": 0,
    }


def test_a_replica_that_is_out_or_preferred_less_says_so(watched: Watched) -> None:
    one, other = watched.fleet
    now = watched.clock()
    watched.fleet.tell(one, Event.EJECTED, "ejected for 3 s: http_500")
    one.ejected_until = now + 3
    other.begin_trial()
    other.cool_until = now + 1
    other.start_slowly(now - 5, 10)
    watched.fleet.drain(other)
    rows = [replica_report(replica, watched.sources, now + 0.5) for replica in watched.fleet]

    assert (rows[0]["state"], rows[0]["health"], rows[0]["ejected_until"]) == ("ejected", "ejected", 2.5)
    assert (rows[1]["state"], rows[1]["health"], rows[1]["duty"]) == ("draining", "ready", "draining")
    assert (rows[1]["trial"], rows[1]["cooling"], rows[1]["share"]) == (True, True, 0.55)


def test_an_old_reading_leaves_only_its_age(watched: Watched) -> None:
    replica, _ = watched.fleet
    replica.take(EngineReading(running=1, waiting=1, kv_usage=0.5), watched.clock())
    watched.clock.move(60)
    row = replica_report(replica, watched.sources, watched.clock())

    assert (row["running"], row["waiting"], row["kv_usage"], row["unexplained"]) == (None,) * 4
    assert row["reading_age"] == 60


def test_a_request_is_described_by_where_it_is() -> None:
    exchange = an_exchange(
        client_id="c1",
        upstream_id="u1",
        model="m1",
        replica="a",
        stage=Stage.STREAMING,
        attempts=2,
        bytes_in=10,
        bytes_out=20,
    )

    assert request_report(exchange, 1007.5) == {
        "id": "c1",
        "upstream_id": "u1",
        "endpoint": "/v1/chat/completions",
        "model": "m1",
        "stage": "streaming",
        "replica": "a",
        "age": 7.5,
        "attempts": 2,
        "bytes_in": 10,
        "bytes_out": 20,
    }


def test_a_request_id_of_any_bytes_can_be_written() -> None:
    odd = b"\xff-id".decode("utf-8", "surrogateescape")
    document = orjson.dumps(request_report(an_exchange(client_id=odd), 1000.0))

    assert json.loads(document)["id"].endswith("-id")


def test_a_request_without_a_replica_has_none() -> None:
    assert request_report(an_exchange(), 1000.0)["replica"] is None
