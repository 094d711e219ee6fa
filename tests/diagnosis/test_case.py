"""What the checks look at."""

from replicarouter.diagnosis.case import Case
from replicarouter.diagnosis.verdict import Expectations
from replicarouter.diagnosis.window import Window
from tests.diagnosis.pages import Change, Router, snapshot, unchanged, window


def case(change: Change = unchanged, looks: int = 6) -> Case:
    return Case(window(change, looks=looks), Expectations())


def test_a_replica_has_the_routers_counts_beside_its_engines() -> None:
    def some(router: Router, _: float) -> None:
        router[0].connecting, router[0].sent, router[0].streaming = 1, 2, 3
        router[0].running, router[0].waiting, router[0].limit = 4, 5, 8

    member = case(some).members[0]
    assert (member.typical, member.with_engine.median, member.limit) == (6, 5, 8)
    assert member.running is not None
    assert member.waiting is not None
    assert (member.running.median, member.waiting.median) == (4, 5)
    assert member.unexplained is not None
    assert member.unexplained.last == -4


def test_what_an_engine_told_before_and_not_at_the_last_look_does_not_count() -> None:
    def lost(router: Router, seconds: float) -> None:
        router[0].fresh = seconds < 3

    members = case(lost).members
    assert members[0].running is None
    assert members[1].running is not None


def test_a_replica_is_ready_at_some_looks() -> None:
    def late(router: Router, seconds: float) -> None:
        router[0].state = "loading" if seconds < 2 else "ready"

    member = case(late).members[0]
    assert (member.state, member.takes, round(member.ready, 2)) == ("ready", True, 0.67)


def test_with_one_model_all_replicas_are_one_pool() -> None:
    (pool,) = case().pools
    assert (pool.model, len(pool.members), pool.policies) == ("m", 8, ("least-outstanding",))


def test_with_several_models_a_replica_is_in_the_pools_it_has_served() -> None:
    def two(router: Router, _: float) -> None:
        router.more['policy_info{model="n",policy="session"}'] = 1
        for one in router.replicas[4:]:
            one.model = "n"

    pools = {pool.model: [member.name for member in pool.members] for pool in case(two).pools}
    assert pools["n"] == ["r4", "r5", "r6", "r7"]
    assert pools["m"] == ["r0", "r1", "r2", "r3"]


def test_a_policy_that_is_not_told_is_known_by_what_it_did() -> None:
    page = (
        'replicarouter_requests_queued{model="m"} 0\n'
        'replicarouter_replica_state{replica="a",state="ready"} 1\n'
        'replicarouter_affinity_total{policy="session",result="hit"} 5\n'
    )
    (pool,) = Case(Window([snapshot(page)]), Expectations()).pools
    assert pool.policies == ("session",)


def test_requests_are_held_when_they_wait_long_enough() -> None:
    def waits(router: Router, _: float) -> None:
        router.queued, router.held = 5, 0.5

    def passes(router: Router, _: float) -> None:
        router.queued, router.held = 5, 0.02

    def untold(router: Router, _: float) -> None:
        router.queued, router.held = 5, None

    def one_untold(router: Router, _: float) -> None:
        router.queued, router.held = 1, None

    def at_times(router: Router, seconds: float) -> None:
        router.queued, router.held = (5, 0.5) if seconds < 2 else (0, 0.0)

    held = {
        change: (found := case(change)).held(found.queued)
        for change in (waits, passes, untold, one_untold, at_times)
    }
    assert held == {waits: True, passes: False, untold: True, one_untold: False, at_times: False}


def test_engines_are_busy_when_most_of_them_are() -> None:
    def three(router: Router, _: float) -> None:
        for one in router.replicas[:3]:
            one.waiting = 4

    def five(router: Router, _: float) -> None:
        for one in router.replicas[:5]:
            one.waiting = 4

    def full(router: Router, _: float) -> None:
        for one in router.replicas:
            one.max_num_seqs = 16

    def roomy(router: Router, _: float) -> None:
        for one in router.replicas:
            one.max_num_seqs = 32

    busy = [(found := case(change)).busy(found.takers) for change in (three, five, full, roomy)]
    assert busy == [False, True, True, False]
    assert not case().busy([])
