"""What a request and a streamed event cost: counted, not timed, so that a busy machine changes nothing."""

import sys
from collections.abc import Sequence

import pytest

from benchmarks.call_budget import WRITE, Budget, file_of_budget, verdicts
from benchmarks.call_scenarios import measure

VERSIONS = ((3, 11), (3, 12), (3, 13))
"""Of Python, each with a budget; on others there is nothing to compare with."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "names",
    [("short",), ("short-prefix",), ("opening", "chunk", "closing")],
    ids="-".join,
)
def test_a_request_and_an_event_cost_what_their_budget_allows(names: Sequence[str]) -> None:
    if sys.version_info[:2] not in VERSIONS:
        pytest.skip(f"{file_of_budget().name} is not there; it is made by: {WRITE}")
    if wrong := verdicts(Budget.read(), measure(names)):
        pytest.fail("\n".join(wrong), pytrace=False)
