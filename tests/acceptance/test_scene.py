"""Which models there are to check, and where each is reached."""

import random
import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

import aiohttp

from replicarouter.acceptance.door import Door
from replicarouter.acceptance.finding import Status, failed, skipped
from replicarouter.acceptance.prompts import Prompts
from replicarouter.acceptance.scene import Replica, Scene, Wishes


def door(name: str) -> Door:
    return Door(name, f"http://{name}", cast(aiohttp.ClientSession, None), time.monotonic)


def scene(listed: Sequence[Mapping[str, object]], *replicas: Replica, **more: Any) -> Scene:
    known = {
        "main": door("router"),
        "router": True,
        "admin": None,
        "blind": None,
        "unlisted": "",
        "wishes": Wishes(),
        "prompts": Prompts(random.Random(1)),
        "clock": time.monotonic,
        **more,
    }
    return Scene(replicas=replicas, listed=listed, **known)


def replica(name: str, *models: str) -> Replica:
    return Replica(door=door(name), cards=[{"id": model} for model in models])


def test_adapters_and_aliases_are_checked_only_when_asked_for() -> None:
    listed = [{"id": "base"}, {"id": "tuned", "parent": "base"}]
    assert scene(listed).models == ["base"]
    assert scene(listed, wishes=Wishes(models=("tuned",))).models == ["tuned"]


def test_a_model_is_reached_through_the_router_and_at_those_that_list_it() -> None:
    one = scene([{"id": "a"}, {"id": "b"}], replica("x", "a"), replica("y", "a", "b"), replica("z", "b"))
    assert [door.name for door in one.doors("a")] == ["router", "x", "y"]
    assert [door.name for door in one.doors("b")] == ["router", "y", "z"]


def test_there_is_nothing_to_compare_with_one_replica_or_none_known() -> None:
    pair = scene([{"id": "a"}], replica("x", "a"), replica("y", "a"))
    assert pair.too_few("a") is None
    lone = scene([{"id": "a"}], replica("x", "a")).too_few("a")
    blind = scene([{"id": "a"}], blind=failed("no admin API")).too_few("a")
    assert lone is not None
    assert blind is not None
    assert lone.status is blind.status is Status.SKIPPED
    assert blind.why == "the replicas are not known"
    meant = scene([{"id": "a"}], blind=skipped("--router-only")).too_few("a")
    assert meant is not None
    assert meant.why == "only the router is checked"
