"""All checks together: silent on healthy fleets, in order, and never raising."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from replicarouter.diagnosis.checks import CHECKS
from replicarouter.diagnosis.judge import exit_status
from replicarouter.diagnosis.ledger import ledger
from replicarouter.diagnosis.snapshot import Snapshot
from replicarouter.diagnosis.text import conclusion, ledger_lines, verdict_lines
from replicarouter.diagnosis.verdict import Side, Verdict
from replicarouter.diagnosis.window import Window
from replicarouter.settings import POLICY_NAMES
from tests.diagnosis.pages import Router, codes, fleet, judged, window
from tests.properties import examples


@pytest.mark.parametrize("looks", [1, 2, 11])
@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_a_healthy_busy_fleet_gives_no_verdict(policy: str, looks: int) -> None:
    def served(router: Router, seconds: float) -> None:
        router.policy = policy
        for result, share in (("hit", 0.8), ("new", 0.15), ("spill", 0.05)):
            router.more[f'affinity_total{{policy="{policy}",result="{result}"}}'] = 40 * share * seconds

    assert codes(window(served, looks=looks), concurrency=128, cold=True) == []


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("users", "replicas"), [(256, 8), (64, 8), (20, 2), (300, 24), (6, 4)])
def test_chance_is_no_imbalance(seed: int, users: int, replicas: int) -> None:
    """Under `random` every user is anywhere, and stays there for longer than a window; a few requests are
    between the router and its engines, or come during a step."""
    random = Random(seed)
    places = [random.randrange(replicas) for _ in range(users)]
    gaps = [random.uniform(0.85, 1.15) for _ in range(replicas)]

    def thrown(router: Router, _: float) -> None:
        router.policy = "random"
        for number, one in enumerate(router.replicas):
            one.streaming = places.count(number)
            one.waiting = random.choice((0, 0, 0, 0, 1)) if one.streaming else 0
            one.running = max(0, one.streaming - one.waiting + random.randint(-2, 2))
            one.gap *= gaps[number]

    assert codes(window(thrown, looks=5, replicas=replicas), concurrency=users) == []


def test_an_idle_fleet_gives_no_verdict() -> None:
    def idle(router: Router, _: float) -> None:
        router.received, router.clients = 500, 0
        for one in router.replicas:
            one.streaming, one.kv, one.steps, one.gaps = 0, 0, 77, 0

    assert codes(window(idle)) == []


def test_a_fleet_that_fills_up_gives_no_verdict() -> None:
    """256 users come at once: for a moment all connect, then all are computed."""

    def burst(router: Router, seconds: float) -> None:
        for one in router.replicas:
            one.connecting, one.streaming = (32, 0) if seconds == 0 else (0, 32)
            one.running = 0 if seconds < 2 else 32

    assert codes(window(burst)) == []


def test_what_holds_requests_back_comes_before_what_follows_from_it() -> None:
    def much(router: Router, seconds: float) -> None:
        router.connector_limit, router.connector_waiting, router.held = 100, 156, 2.0
        for one in router.replicas:
            one.connecting, one.streaming = 19.5, 12.5
        router[3].absent = ("vllm:num_preemptions_total",)
        router[5].restarts = float(seconds > 2)

    assert codes(window(much)) == ["connector_limit", "engine_restarted", "series_missing"]


def test_the_exit_status_is_that_of_the_nearest_limit() -> None:
    router, elsewhere, note = (Verdict("c", side, "t", (), "c") for side in Side)
    assert exit_status([]) == exit_status([note]) == 0
    assert exit_status([note, elsewhere]) == 4
    assert exit_status([elsewhere, router, note]) == 3


def test_every_check_is_there_once() -> None:
    assert len(set(CHECKS)) == len(CHECKS)


# Any page


def odd(router: Router, seconds: float) -> None:
    """Something of everything."""
    router.connector_limit, router.connector_waiting, router.queued, router.held = 9, 40, 30, 3
    router.more |= {
        'shed_total{reason="overloaded"}': 3 * seconds,
        'shed_total{reason="queue_full"}': 2 * seconds,
        'affinity_total{policy="session",result="hit"}': 10 * seconds,
        'affinity_total{policy="session",result="spill"}': 9 * seconds,
        'affinity_total{policy="session",result="rehash"}': 8 * seconds,
        'retries_total{reason="connect_failed"}': 60 * seconds,
        'ejections_total{replica="r1",reason="failures"}': seconds,
        'requests_total{endpoint="e",model="m",replica="r1",outcome="connect_failed"}': 50 * seconds,
        'answer_ttft_seconds_sum{model="m"}': 90 * seconds,
        'answer_ttft_seconds_count{model="m"}': 9 * seconds,
        'connect_seconds_sum{replica="r0"}': 90 * seconds,
        'connect_seconds_count{replica="r0"}': 9 * seconds,
    }
    router.policy, router.cpu, router.lag, router.open_fds = "session", 0.99 * seconds, 0.4, 19999
    router[0].waiting, router[0].kv, router[0].limit, router[0].streaming = 9, 0.99, 20, 60
    router[1].state, router[1].stalled, router[1].silence = "unhealthy", 1, 50
    router[2].gap, router[2].weight, router[2].max_num_seqs = 0.1, 4, 16
    router[3].accepted, router[3].drafted, router[3].version = 4, 3, "0.31.0"
    router[4].running, router[5].running, router[5].preemptions = 40, 3, seconds
    router[6].restarts, router[6].absent = seconds, ("x",)
    router[7].fresh, router[7].hits = False, 40 * seconds


def test_the_odd_page_makes_many_checks_speak() -> None:
    assert len(set(codes(window(odd), concurrency=4000, cold=True))) > 15


def parts(seconds: float) -> list[Metric]:
    """Each line of a page by itself, read."""
    router = fleet(seconds)
    odd(router, seconds)
    lines = [line for line in router.page().splitlines() if not line.startswith("#")]
    return [family for line in lines for family in text_string_to_metric_families(f"{line}\n")]


PARTS = [parts(float(seconds)) for seconds in range(3)]


def sound(found: Window) -> None:
    verdicts = judged(found, concurrency=300, cold=True)
    assert all(verdict.title and verdict.cure and verdict.evidence for verdict in verdicts)
    assert verdict_lines(found, verdicts) or not verdicts
    assert ledger_lines(ledger(found.last))
    assert conclusion(found, verdicts)


@given(st.randoms(use_true_random=False), st.floats(0, 1), st.integers(1, 3))
@examples(40)
def test_no_part_of_a_page_makes_a_check_raise(random: Random, kept: float, looks: int) -> None:
    sound(
        Window(
            [Snapshot.of([part for part in PARTS[at] if random.random() < kept], at) for at in range(looks)]
        )
    )


@given(st.dictionaries(st.integers(0, len(PARTS[1]) - 1), st.floats(-1e9, 1e9), max_size=40))
@examples(40)
def test_no_value_makes_a_check_raise(values: dict[int, float]) -> None:
    changed = []
    for place, part in enumerate(PARTS[1]):
        metric = Metric(part.name, "", "unknown")
        (sample,) = part.samples
        metric.add_sample(sample.name, sample.labels, values.get(place, sample.value))
        changed.append(metric)
    sound(Window([Snapshot.of(PARTS[0], 0), Snapshot.of(changed, 1)]))
