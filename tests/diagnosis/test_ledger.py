"""The ledger as a document."""

from replicarouter.diagnosis.ledger import STAGES, ledger
from tests.diagnosis.pages import Router, snapshot, window


def test_stages_add_up_to_what_was_accepted_and_has_not_finished() -> None:
    def mixed(router: Router, seconds: float) -> None:
        router.receiving, router.queued = 3 + seconds, 5
        router[0].connecting, router[1].sent = 7, 11

    found = ledger(window(mixed).last)
    assert found["accepted"] == sum(found[stage] for stage in STAGES) == 128 + 8 + 5 + 7 + 11
    assert found["accepted"] == found["received_total"] - found["finished_total"]


def test_each_replica_has_its_row() -> None:
    def mixed(router: Router, _: float) -> None:
        router[2].waiting, router[2].kv = 4, 0.75
        router[3].fresh, router[3].state = False, "ejected"

    found = ledger(window(mixed).last)
    assert found["replicas"][2] == {
        "name": "r2",
        "state": "ready",
        "connecting": 0,
        "sent": 0,
        "streaming": 16,
        "outstanding": 16,
        "running": 12,
        "waiting": 4,
        "unexplained": 0,
        "kv_usage": 0.75,
        "reading_age": 0.4,
    }
    assert (found["replicas"][3]["state"], found["replicas"][3]["running"]) == ("ejected", None)


def test_what_nobody_tells_is_none() -> None:
    found = ledger(snapshot("replicarouter_requests_receiving 2\n"))
    assert (found["running"], found["waiting"], found["unexplained"]) == (None, None, None)
    assert (found["accepted"], found["replicas"], found["connector"]["limit"]) == (2, [], None)
