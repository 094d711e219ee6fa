"""Every check is told of, and has nothing to say against a good fleet."""

import pytest

from replicarouter.acceptance import CHECKS, Status, Wishes
from tests.acceptance.conftest import Examine
from tests.acceptance.scripted import Scripted

STICKY = {"policy": "prefix-hash"}


@pytest.mark.parametrize("name", CHECKS)
def test_a_check_says_what_it_asks_and_what_it_sends(name: str) -> None:
    check = CHECKS[name]
    assert check.name == name
    assert check.asks
    assert check.costs


@pytest.mark.parametrize("name", CHECKS)
async def test_a_good_fleet_passes(name: str, examine: Examine) -> None:
    """So that what the tests of each check do to this fleet is the only thing wrong with it."""
    wishes = Wishes(concurrency=6, tools=True)
    finding = await examine(name, Scripted("one"), Scripted("two"), wishes=wishes, settings=STICKY)
    assert (finding.status, finding.cure) == (Status.PASS, ""), finding
