"""How engines make tokens: speculation that could draft more, and reasoning before the answer."""

from collections.abc import Iterator

from replicarouter.diagnosis.case import Case
from replicarouter.diagnosis.verdict import Side, Verdict
from replicarouter.diagnosis.words import names, seconds

CEILING = 0.97
"""Share of the longest possible acceptance from which on nearly every draft is accepted whole."""

REASONED = 5
"""Answers below which the two times say nothing."""

LATER, NOTICED = 1.5, 0.1
"""Times the first token, and seconds after it, from which on the first token of the answer is another
measure."""


def spec_ceiling(case: Case) -> Iterator[Verdict]:
    """Of speculative decoding nearly all drafts are accepted: longer ones would bring more."""
    accepted = case.window.courses("replica", "engine_spec_accept_length")
    drafted = case.window.courses("replica", "engine_spec_draft_length")
    found = sorted(
        name
        for name, course in accepted.items()
        if name in drafted
        and drafted[name].median > 0
        # The model's own token comes on top of those that were drafted.
        and course.median >= CEILING * (drafted[name].median + 1)
    )
    if not found:
        return
    one = found[0]
    length, drafts = accepted[one].median, drafted[one].median
    yield Verdict(
        "spec_ceiling",
        Side.ELSEWHERE,
        "Speculative decoding is at its ceiling",
        (
            (
                f"{length:.2f} tokens a step of {drafts + 1:.2f} possible ({drafts:.1f} drafted, one of the "
                f"model's own) at {names(found)}"
            ),
        ),
        f"num_speculative_tokens of the engines: now {drafts:.0f}; try {2 * drafts:.0f}",
        setting="num_speculative_tokens",
        replica=one if len(found) == 1 else "",
    )


def reasoning_first(case: Case) -> Iterator[Verdict]:
    """The first token belongs to the reasoning: whoever measures TTFT measures something else."""
    first = case.window.mean("ttft_seconds")
    answer = case.window.mean("answer_ttft_seconds")
    if first is None or answer is None or answer.count < REASONED:
        return
    if answer.seconds < LATER * first.seconds or answer.seconds - first.seconds < NOTICED:
        return
    yield Verdict(
        "reasoning_first",
        Side.NOTE,
        "The first token is not the first token of the answer",
        (
            (
                f"{seconds(first.seconds)} to the first token in the mean, {seconds(answer.seconds)} to the "
                "first one of the answer: models reason first"
            ),
        ),
        "compare with figures that are measured the same way, or turn reasoning off",
    )
