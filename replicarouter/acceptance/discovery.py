"""Finding out what is at the given address, and which replicas are behind it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from urllib.parse import urlsplit, urlunsplit

import aiohttp

from replicarouter.acceptance.door import Door, Meter
from replicarouter.acceptance.errors import CheckError, Refused
from replicarouter.acceptance.finding import Finding, skipped
from replicarouter.acceptance.pace import together
from replicarouter.acceptance.prompts import Prompts
from replicarouter.acceptance.scene import Replica, Scene, Wishes
from replicarouter.clock import Clock

ADMIN_PORT = 8081
"""Where a router's admin API is unless it was moved."""

ROUTER_NAME = "replicarouter"
"""What a router calls itself under `/version`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where to look. `admin` "" is the admin port's default at the same host; `replicas` replace what it
    tells. Keys are empty where none is needed: `key` is for `url`, `replica_key` for the replicas."""

    url: str
    admin: str = ""
    replicas: tuple[str, ...] = ()
    key: str = ""
    token: str = ""
    replica_key: str = ""


async def discover(
    place: Place, wishes: Wishes, session: aiohttp.ClientSession, clock: Clock, source: Random
) -> Scene:
    """Look around; raises `CheckError` when nothing answers at the address, or it wants a key."""
    make = _Maker(session, clock, Meter())
    main = make.door(_name_of(place.url), place.url, place.key)
    router = await _is_router(main)
    if router:
        main.name = "the router"
        behind = await _behind(place, make)
    listed, unlisted = await _cards(main)
    if not router:
        behind = _Behind((Replica(door=main, cards=listed, problem=unlisted),), None, None)
    return Scene(
        main=main,
        router=router,
        replicas=behind.replicas,
        admin=behind.admin,
        blind=behind.blind,
        listed=listed,
        unlisted=unlisted,
        wishes=wishes,
        prompts=Prompts(source),
        clock=clock,
        meter=make.meter,
    )


@dataclass(frozen=True, slots=True)
class _Maker:
    """Makes doors that share a client and a meter."""

    session: aiohttp.ClientSession
    clock: Clock
    meter: Meter

    def door(self, name: str, url: str, key: str) -> Door:
        return Door(name, url, self.session, self.clock, key=key, meter=self.meter)


@dataclass(frozen=True, slots=True)
class _Behind:
    """The replicas; the admin API where it answers, and why they are not known where it does not."""

    replicas: Sequence[Replica]
    admin: Door | None
    blind: Finding | None


async def _behind(place: Place, make: _Maker) -> _Behind:
    admin = make.door("the admin API", place.admin or _beside(place.url), place.token)
    rows, blind = await _rows(admin)
    if place.replicas:
        known = {str(row["url"]).rstrip("/"): row for row in rows}
        rows = [{"url": url, **known.get(url.rstrip("/"), {})} for url in place.replicas]
    looks = await together(
        _look(make.door(_row_name(row), str(row["url"]), place.replica_key), row) for row in rows
    )
    replicas = tuple(look for look in looks if isinstance(look, Replica))
    return _Behind(replicas, None if blind else admin, None if place.replicas else blind)


async def _is_router(main: Door) -> bool:
    reply = await main.get("/version")
    if reply.status in {401, 403}:
        raise Refused(reply.place, reply.status, "it wants a key (--key)")
    try:
        return reply.document().get("name") == ROUTER_NAME
    except CheckError:
        return False


async def _rows(admin: Door) -> tuple[list[Mapping[str, object]], Finding | None]:
    """The replicas as the admin API tells them, or why it does not."""
    try:
        listed = (await admin.get("/admin/replicas")).document().get("replicas")
    except CheckError as error:
        cure = "give --admin URL"
        if isinstance(error, Refused) and error.status == 401:
            cure = "give --token, or set REPLICAROUTER_ADMIN__TOKEN"
        why = f"the replicas are not known ({error})"
        return [], skipped(why, f"{cure}, or --replica URL for each")
    rows = [row for row in listed if isinstance(row, dict)] if isinstance(listed, list) else []
    return [row for row in rows if isinstance(row.get("url"), str)], None


async def _look(door: Door, row: Mapping[str, object]) -> Replica:
    cards, problem = await _cards(door)
    return Replica(
        door=door,
        cards=cards,
        problem=problem,
        state=str(row.get("state") or ""),
        why=str(row.get("why") or ""),
        version=str(row.get("engine_version") or ""),
    )


async def _cards(door: Door) -> tuple[list[Mapping[str, object]], str]:
    """The model cards of a door, and what is wrong if there are none."""
    try:
        listed = (await door.get("/v1/models")).document().get("data")
    except Refused as refusal:
        hint = " (--replica-key?)" if refusal.status == 401 else ""
        return [], f"{refusal}{hint}"
    except CheckError as error:
        return [], str(error)
    cards = [card for card in listed if isinstance(card, dict)] if isinstance(listed, list) else []
    cards = [card for card in cards if isinstance(card.get("id"), str)]
    return list(cards), "" if cards else f"{door.name} lists no model"


def _row_name(row: Mapping[str, object]) -> str:
    return str(row.get("name") or _name_of(str(row["url"])))


def _name_of(url: str) -> str:
    return urlsplit(url).netloc


def _beside(url: str) -> str:
    """The admin port's default address at the host of `url`; it speaks plain HTTP."""
    host = urlsplit(url).hostname or ""
    name = f"[{host}]" if ":" in host else host
    return urlunsplit(("http", f"{name}:{ADMIN_PORT}", "", "", ""))
