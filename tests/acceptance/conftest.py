"""Examining a fleet with some of the checks, over real sockets."""

import random
import time
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any, Protocol

import pytest

from replicarouter.acceptance import Finding, Place, Scene, Wishes, discover, inspect, open_session
from tests.acceptance.scripted import Scripted
from tests.fakes.client import HOST
from tests.fakes.running import StartRouter


class Examine(Protocol):
    """Run one check, against a router in front of these replicas or, for a string, against that URL."""

    def __call__(self, name: str, *fleet: Scripted | str, **more: Any) -> Awaitable[Finding]: ...


async def examine_place(place: Place, name: str, wishes: Wishes | None = None) -> Finding:
    """The finding of one check at a place."""
    chosen = replace(wishes or Wishes(), only=frozenset((name,)))
    async with open_session() as session:
        scene: Scene = await discover(place, chosen, session, time.monotonic, random.Random(7))
        (result,) = await inspect(scene, lambda _: None)
    return result.finding


@pytest.fixture
def examine(start_router: StartRouter) -> Examine:
    """`settings` are the router's; `wishes` what is asked of the check; `keys` more of the place."""

    async def one(
        name: str,
        *fleet: Scripted | str,
        wishes: Wishes | None = None,
        settings: dict[str, Any] | None = None,
        ready: int | None = None,
        **keys: Any,
    ) -> Finding:
        if isinstance(fleet[0], str):
            return await examine_place(Place(url=fleet[0], **keys), name, wishes)
        router = await start_router(*fleet, ready=ready, **(settings or {}))
        admin = f"http://{HOST}:{router.admin_port}"
        place = Place(url=f"http://{HOST}:{router.port}", **{"admin": admin, **keys})
        return await examine_place(place, name, wishes)

    return one
