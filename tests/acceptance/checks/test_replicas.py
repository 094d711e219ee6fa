"""Replicas that are not known are no acceptance."""

from replicarouter.acceptance import Status
from tests.acceptance.conftest import Examine
from tests.acceptance.scripted import Scripted

LOCKED = {"admin": {"token": "secret-token"}}


async def test_replicas_that_cannot_be_seen_fail_with_every_way_to_see_them(examine: Examine) -> None:
    finding = await examine("replicas", Scripted("one"), settings=LOCKED)
    assert finding.status is Status.FAIL
    assert finding.why.startswith("they are not known: the admin API at http://")
    assert finding.why.endswith("answers 401: it wants a token")
    assert all(flag in finding.cure for flag in ("--token", "--replica URL", "--router-only"))


async def test_replicas_that_are_given_or_not_wanted_do_not_fail(examine: Examine) -> None:
    one = Scripted("one")
    given = await examine("replicas", one, settings=LOCKED, replicas=(one.url,))
    assert (given.status, given.why) == (Status.PASS, "1 replica is known")
    unwanted = await examine("replicas", Scripted("two"), settings=LOCKED, router_only=True)
    assert (unwanted.status, "--router-only" in unwanted.why) == (Status.SKIPPED, True)


async def test_an_engine_alone_has_none(examine: Examine) -> None:
    async with Scripted("one") as one:
        assert (await examine("replicas", one.url)).status is Status.SKIPPED
