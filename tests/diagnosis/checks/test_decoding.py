"""How tokens are made."""

import pytest

from replicarouter.diagnosis.verdict import Side
from tests.diagnosis.pages import Change, Router, codes, only, window


def speculating(accepted: float, drafted: float = 3) -> Change:
    def change(router: Router, _: float) -> None:
        for one in router.replicas:
            one.accepted, one.drafted = accepted, drafted

    return change


@pytest.mark.parametrize("looks", [1, 6])
def test_speculation_that_accepts_nearly_everything_could_draft_more(looks: int) -> None:
    verdict = only(window(speculating(3.95), looks=looks))
    assert (verdict.code, verdict.side, verdict.setting) == (
        "spec_ceiling",
        Side.ELSEWHERE,
        "num_speculative_tokens",
    )
    assert verdict.evidence[0].startswith("3.95 tokens a step of 4.00 possible")
    assert verdict.cure == "num_speculative_tokens of the engines: now 3; try 6"


@pytest.mark.parametrize("change", [speculating(3.8), speculating(1.0, 0), speculating(2.2)])
def test_drafts_that_are_refused_at_times_are_no_finding(change: Change) -> None:
    assert codes(window(change)) == []


def answers(first: float, rate: float = 10) -> Change:
    def change(router: Router, seconds: float) -> None:
        router.more['answer_ttft_seconds_sum{model="m"}'] = 900 + first * rate * seconds
        router.more['answer_ttft_seconds_count{model="m"}'] = 90 + rate * seconds

    return change


def test_reasoning_before_the_answer_is_noted_with_both_times() -> None:
    verdict = only(window(answers(2.5)))
    assert (verdict.code, verdict.side) == ("reasoning_first", Side.NOTE)
    assert (
        "200 ms to the first token in the mean, 2.5 s to the first one of the answer" in verdict.evidence[0]
    )


@pytest.mark.parametrize("change", [answers(0.25), answers(2.5, 0.6), answers(2.5, 0)])
def test_answers_that_begin_at_once_or_are_few_are_no_finding(change: Change) -> None:
    assert codes(window(change)) == []
