"""What the checks look at."""

import pytest

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


@pytest.mark.parametrize(("longest", "held"), [(0.09, False), (0.11, True)])
def test_a_tenth_of_a_second_is_long_enough(longest: float, held: bool) -> None:
    def waits(router: Router, _: float) -> None:
        router.queued, router.held = 5, longest

    found = case(waits)
    assert found.held(found.queued) is held


@pytest.mark.parametrize(("count", "held"), [(1, False), (2, True)])
def test_where_nobody_tells_for_how_long_two_must_wait(count: float, held: bool) -> None:
    def untold(router: Router, _: float) -> None:
        router.queued, router.held = count, None

    found = case(untold)
    assert found.held(found.queued) is held


@pytest.mark.parametrize(("running", "full"), [(94, False), (95, True)])
def test_an_engine_is_full_a_little_below_what_it_may_run(running: float, full: bool) -> None:
    def some(router: Router, _: float) -> None:
        router[0].max_num_seqs, router[0].running = 100, running

    assert case(some).members[0].full is full


@pytest.mark.parametrize(("outstanding", "reached"), [(17, False), (18, True)])
def test_a_limit_is_reached_a_little_below_it(outstanding: float, reached: bool) -> None:
    def some(router: Router, _: float) -> None:
        router[0].limit, router[0].streaming = 20, outstanding

    members = case(some).members
    assert members[0].at_limit is reached
    assert not members[1].at_limit


@pytest.mark.parametrize(("waiting", "queues"), [(4, False), (5, True)])
def test_those_that_wait_for_the_next_two_steps_are_no_queue(waiting: float, queues: bool) -> None:
    """20 requests a second end at r0, and a step takes 0.11 s: 4.4 come within two."""

    def short_answers(router: Router, seconds: float) -> None:
        router.received = 1000 + 20 * seconds
        router[0].waiting = waiting
        router[0].gap, router[0].gaps = 0.11, 9 * seconds

    assert case(short_answers).members[0].queues is queues


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
