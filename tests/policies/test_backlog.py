"""What each replica has yet to compute, and was given lately."""

import pytest

from replicarouter.policies.backlog import LATELY, MEMORY, Backlog


def a_backlog(replicas: int = 2) -> Backlog:
    backlog = Backlog()
    for slot in range(replicas):
        backlog.open(slot)
    return backlog


def test_what_is_sent_waits_until_it_is_computed() -> None:
    backlog = a_backlog()
    backlog.add(0, 1000)
    assert backlog.waiting == [1000, 0]
    assert backlog.weights == [1000 * (1 + LATELY), 0]

    backlog.done(0, 1000)
    assert backlog.waiting == [0, 0]
    assert backlog.weights == [1000 * LATELY, 0]


def test_no_rest_is_left_of_what_has_been_computed() -> None:
    backlog = a_backlog()
    parts = [0.1, 0.2, 0.3, 1e9, 0.7]
    for tokens in parts:
        backlog.add(0, tokens)
    for tokens in parts:
        backlog.done(0, tokens)

    assert backlog.waiting == [0, 0]


def test_a_token_weighs_by_the_scale_of_its_replica() -> None:
    backlog = a_backlog()
    backlog.add(0, 1000)
    backlog.add(1, 1000)
    backlog.scale(1, 0.25)

    assert backlog.weights[1] == pytest.approx(backlog.weights[0] / 4)
    assert backlog.waiting == [1000, 1000]


def test_what_was_given_long_ago_weighs_less() -> None:
    backlog = a_backlog(2)
    backlog.add(0, 1000)
    backlog.done(0, 1000)
    for _ in range(2 * MEMORY - 1):
        backlog.add(1, 0)

    assert backlog.weights[0] == pytest.approx(1000 * LATELY / 2)


def test_a_newcomer_need_not_make_up_for_what_it_missed() -> None:
    backlog = a_backlog(2)
    for slot in (0, 1):
        backlog.add(slot, 1000)
        backlog.done(slot, 1000)

    backlog.open(2)

    assert backlog.weights[2] == pytest.approx(1000 * LATELY)
    assert backlog.waiting[2] == 0


def test_a_slot_is_empty_for_whoever_comes_next() -> None:
    backlog = a_backlog(2)
    backlog.add(1, 500)
    backlog.close(1)
    backlog.open(1)
    assert backlog.weights[1] == 0
