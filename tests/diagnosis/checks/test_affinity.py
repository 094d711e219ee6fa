"""Keys that do not meet their replicas."""

import pytest

from replicarouter.diagnosis.verdict import Side
from tests.diagnosis.pages import Change, Router, codes, only, window


def served(policy: str, **results: float) -> Change:
    """So many a second of each result."""

    def change(router: Router, seconds: float) -> None:
        router.policy = policy
        for result, rate in results.items():
            router.more[f'affinity_total{{policy="{policy}",result="{result}"}}'] = 1000 + rate * seconds

    return change


@pytest.mark.parametrize("policy", ["session", "prefix-hash", "prefix-cache"])
def test_keys_whose_replica_is_gone_are_told(policy: str) -> None:
    verdict = only(window(served(policy, hit=16, rehash=4)))
    assert (verdict.code, verdict.side) == ("affinity_lost", Side.ELSEWHERE)
    assert "20 of 100 requests with a known key" in verdict.evidence[0]


@pytest.mark.parametrize("policy", ["session", "prefix-hash"])
def test_keys_that_load_sends_elsewhere_are_told_with_the_setting(policy: str) -> None:
    verdict = only(window(served(policy, hit=12, spill=8, none=50, new=50)))
    assert (verdict.code, verdict.setting) == ("affinity_lost", "policy_options.load_factor")
    assert "40 of 100 requests with a known key" in verdict.evidence[0]


@pytest.mark.parametrize(
    "change",
    [
        served("session", hit=18, spill=2),
        served("session", hit=19, rehash=1),
        served("session", new=40),
        served("session", none=40),
        served("session", hit=1, spill=1, rehash=1.8),
        served("prefix-cache", hit=10, spill=30),
        served("least-outstanding", none=40),
    ],
)
def test_affinity_that_holds_is_no_finding(change: Change) -> None:
    assert codes(window(change)) == []


def test_one_page_tells_no_shares() -> None:
    assert codes(window(served("session", hit=0, rehash=40), looks=1)) == []
