"""What several workers have counted, read as one."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from replicarouter.commons.memory import Commons
from replicarouter.fleet.common_ledger import WorkerLedger
from replicarouter.telemetry.metrics import Metrics
from replicarouter.workers.books import AllLedger, AllMetrics, AllSeries

CHAT = "/v1/chat/completions"
OK = (CHAT, "m1", "a", "ok")


class Scene:
    """Two workers and what their keeper reads."""

    def __init__(self, commons: Commons) -> None:
        self.commons = commons
        series = AllSeries(commons)
        self.ledger = AllLedger(commons, series)
        self.metrics = AllMetrics(series)
        self.workers = [self.sit_down(seat) for seat in range(2)]

    def sit_down(self, seat: int) -> tuple[WorkerLedger, Metrics]:
        taken = self.commons.seat(seat)
        return WorkerLedger(taken), Metrics(taken.shelf)


@pytest.fixture
def scene() -> Iterator[Scene]:
    with closing(Commons(2)) as commons:
        yield Scene(commons)


def test_counters_are_added_up_by_their_labels(scene: Scene) -> None:
    for ledger, _ in scene.workers:
        ledger.arrived.add((CHAT,), 3)
        ledger.finished.add(OK, 2)
    scene.workers[1][0].finished.add((CHAT, "m1", "b", "ok"))
    assert dict(scene.ledger.finished) == {OK: 4, (CHAT, "m1", "b", "ok"): 1}
    assert scene.ledger.received() == {CHAT: 6}
    assert scene.ledger.finished.value(OK) == 4


def test_what_the_keeper_counts_is_in_the_sum(scene: Scene) -> None:
    scene.workers[0][0].ejections.add(("a", "x"))
    scene.ledger.ejections.add(("a", "x"))
    assert dict(scene.ledger.ejections) == {("a", "x"): 2}


def test_histograms_are_added_up(scene: Scene) -> None:
    for _, metrics in scene.workers:
        metrics.gaps.of(("a",)).observe(0.012)
        metrics.gaps.of(("a",)).observe(0.5)
    scene.workers[0][1].gaps.of(("b",)).observe(0.012)
    told = dict(scene.metrics.gaps)
    assert told["a",].count == 4
    assert told["a",].total == pytest.approx(1.024)
    assert scene.metrics.gaps.merged().count == 5
    assert scene.metrics.shed.value(("queue_full",)) == 0


def test_no_count_is_lost_with_a_worker(scene: Scene) -> None:
    scene.workers[0][0].finished.add(OK, 5)
    scene.workers[0][1].gaps.of(("a",)).observe(0.1)
    scene.commons.vacate(0)
    assert scene.ledger.finished.value(OK) == 5
    ledger, metrics = scene.sit_down(0)
    ledger.finished.add(OK)
    metrics.gaps.of(("a",)).observe(0.1)
    assert scene.ledger.finished.value(OK) == 6
    assert scene.metrics.gaps.merged().count == 2


def test_requests_that_a_worker_took_along_are_told_once(scene: Scene) -> None:
    ledger = scene.workers[0][0]
    ledger.arrived.add((CHAT,), 7)
    ledger.finished.add(OK, 4)
    scene.workers[1][0].arrived.add((CHAT,), 9)
    assert scene.ledger.lost_by(0, {}) == {CHAT: 3}
    assert scene.ledger.lost_by(0, {CHAT: 3}) == {}


def test_a_series_of_a_replica_that_has_gone_is_read_where_it_went(scene: Scene) -> None:
    for ledger, metrics in scene.workers:
        ledger.finished.add(OK, 2)
        metrics.gaps.of(("a",)).observe(0.1)
    for ledger, metrics in scene.workers:
        ledger.finished.fold(2, "a", "removed")
        metrics.gaps.fold(0, "a", "removed")
    assert dict(scene.ledger.finished) == {(CHAT, "m1", "removed", "ok"): 4}
    assert [labels for labels, _ in scene.metrics.gaps] == [("removed",)]
