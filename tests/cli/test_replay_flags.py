"""The flags of the replay: what they take, and which go together."""

import argparse

import pytest

from replicarouter.cli import Parser
from replicarouter.cli.replay_flags import add_flags, refuse_misfits

TRACE, WORKLOAD = ("trace.jsonl",), ("--workload", "chat")


def read(*words: str) -> argparse.Namespace:
    parser = Parser(prog="replay")
    parser.set_defaults(parser=parser)
    add_flags(parser)
    arguments = parser.parse_args(words)
    refuse_misfits(arguments)
    return arguments


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*TRACE, "--load-factor", "0.5"), "'0.5'; accepted: a number, 1 or more"),
        ((*TRACE, "--load-factor", "nan"), "'nan'; accepted: a number, 1 or more"),
        ((*TRACE, "--load-factor", "inf"), "'inf'; accepted: a number, 1 or more"),
        ((*TRACE, "--concurrency", "9"), "--concurrency is for a workload only"),
        ((*WORKLOAD, "--speedup", "2"), "--speedup is for a trace only"),
        ((*WORKLOAD, "--longest-prompt", "99"), "--longest-prompt is for a trace only"),
        ((*WORKLOAD, "--whole-prompts"), "--whole-prompts is for a trace only"),
        ((*TRACE, "--untimed", "--load", "1,2"), "--load is for a replay without --untimed only"),
        ((*TRACE, "--untimed", "--slo-ttft", "1"), "--slo-ttft is for a replay without --untimed only"),
        ((*TRACE, "--in-flight", "8"), "--in-flight is for a replay with --untimed only"),
        ((*WORKLOAD, "--rate", "8", "--concurrency", "9"), "give --rate or --concurrency"),
        ((), "give a trace's file or --workload NAME"),
    ],
)
def test_what_does_not_apply_is_refused_in_a_line(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        read(*words)
    err = capsys.readouterr().err
    assert left.value.code == 2
    assert said in err
    assert err.count("\n") == 1


def test_what_applies_is_taken() -> None:
    assert read(*TRACE, "--speedup", "2", "--longest-prompt", "9", "--whole-prompts").speedup == 2.0
    assert read(*WORKLOAD, "--concurrency", "9", "--load", "1,2").load == (1.0, 2.0)
    assert read(*TRACE, "--untimed", "--in-flight", "8", "--load-factor", "1").load_factor == 1.0


def test_help_says_what_is_counted_of_a_workload() -> None:
    parser = Parser(prog="replay")
    add_flags(parser)
    assert "count that come once it has settled" in " ".join(parser.format_help().split())
