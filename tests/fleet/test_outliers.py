"""How many failures are too many, how long an ejection takes, and when a pool can do without a replica."""

import pytest

from replicarouter.fleet.lifecycle import Event
from replicarouter.fleet.outliers import Outliers
from replicarouter.settings import EjectSettings
from tests.scene import a_fleet, a_replica, replica_settings


def outliers(**options: float) -> Outliers:
    return Outliers(EjectSettings.model_validate(options))


def test_who_never_failed_has_no_record() -> None:
    assert outliers().record(a_replica()) is None


def test_so_many_failures_in_a_row_are_enough() -> None:
    judge, replica = outliers(consecutive_failures=3), a_replica()
    assert [judge.failed(replica) for _ in range(4)] == [False, False, True, True]


def test_each_replica_is_counted_by_itself() -> None:
    judge, one, other = outliers(consecutive_failures=2), a_replica("a"), a_replica("b")
    assert [judge.failed(one), judge.failed(other), judge.failed(one)] == [False, False, True]


def test_each_ejection_takes_twice_as_long_up_to_the_longest() -> None:
    judge, replica = outliers(base_seconds=3, max_seconds=60), a_replica()
    now, sentences = 0.0, []
    for _ in range(7):
        sentences.append(judge.sentence(replica, now))
        now += sentences[-1]

    assert sentences == [3, 6, 12, 24, 48, 60, 60]


def test_no_number_of_ejections_is_too_many() -> None:
    judge, replica = outliers(base_seconds=3, max_seconds=60), a_replica()
    assert {judge.sentence(replica, 0.0) for _ in range(5000)} == {3, 6, 12, 24, 48, 60}


def test_ejections_are_forgotten_after_as_long_as_the_longest() -> None:
    judge, replica = outliers(base_seconds=3, max_seconds=60), a_replica()
    judge.sentence(replica, 0.0)
    assert judge.sentence(replica, 3.0 + 59.9) == 6
    assert judge.sentence(replica, 62.9 + 6.0 + 60.0) == 3


def test_an_ejection_begins_the_count_anew_and_has_to_be_disproved() -> None:
    judge, replica = outliers(consecutive_failures=2), a_replica()
    judge.failed(replica)
    judge.sentence(replica, 0.0)
    record = judge.record(replica)

    assert record is not None
    assert (record.failures, record.unproven) == (0, True)


def test_who_has_left_is_forgotten() -> None:
    judge, replica = outliers(), a_replica()
    judge.failed(replica)
    judge.forget(replica)
    judge.forget(replica)
    assert judge.record(replica) is None


@pytest.mark.parametrize(
    ("share", "size", "most"),
    [
        (0.5, 1, 0),
        (0.5, 2, 1),
        (0.5, 3, 1),
        (0.5, 4, 2),
        (0.0, 4, 0),
        (0.3, 10, 3),
        (0.7, 10, 7),
        (1.0, 1, 0),
        (1.0, 4, 3),
    ],
)
def test_a_pool_keeps_its_share_and_its_last_one(share: float, size: int, most: int) -> None:
    judge = outliers(max_share=share)
    fleet = a_fleet(*(f"r{number}" for number in range(size)))
    ejected = 0
    for replica in fleet:
        if judge.may_eject(replica, fleet.pools.values()):
            fleet.tell(replica, Event.EJECTED, "fails")
            ejected += 1
    assert ejected == most


def test_the_last_ready_one_stays_when_the_others_are_unhealthy() -> None:
    judge, fleet = outliers(max_share=1), a_fleet("a", "b", "c")
    for name in "ab":
        fleet.tell(fleet.find(name), Event.FAILED, "refuses connections")
    assert not judge.may_eject(fleet.find("c"), fleet.pools.values())


def test_who_drains_counts_neither_as_a_member_nor_as_ejected() -> None:
    judge, fleet = outliers(max_share=0.5), a_fleet("a", "b", "c", "d")
    fleet.tell(fleet.find("a"), Event.EJECTED, "fails")
    fleet.drain(fleet.find("a"))
    assert judge.may_eject(fleet.find("b"), fleet.pools.values())

    fleet.tell(fleet.find("b"), Event.EJECTED, "fails")
    assert not judge.may_eject(fleet.find("c"), fleet.pools.values())


def test_every_pool_of_a_replica_must_be_able_to_do_without_it() -> None:
    judge = outliers()
    shared = [replica_settings(name, models=["m1"]) for name in ("a", "b")]
    fleet = a_fleet(*shared, replica_settings("c", models=["m1", "m2"]))

    assert judge.may_eject(fleet.find("a"), fleet.pools.values())
    assert not judge.may_eject(fleet.find("c"), fleet.pools.values())
