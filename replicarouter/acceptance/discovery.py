"""Finding out what is at the given address, and which replicas are behind it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from urllib.parse import urlsplit, urlunsplit

import aiohttp

from replicarouter.acceptance.door import Door, Meter
from replicarouter.acceptance.errors import CheckError, NoAnswer, Refused
from replicarouter.acceptance.finding import Finding, failed, skipped
from replicarouter.acceptance.keys import DENIED, KEY, REPLICA_KEY, TOKEN, Secret
from replicarouter.acceptance.pace import together
from replicarouter.acceptance.prompts import Prompts
from replicarouter.acceptance.reply import Reply, reason_in
from replicarouter.acceptance.scene import Replica, Scene, Wishes
from replicarouter.acceptance.words import START
from replicarouter.clock import Clock
from replicarouter.settings.values import is_loopback

CLIENTS_PORT, ADMIN_PORT = 8080, 8081
"""Where a router serves, and where its admin API is, unless they were moved."""

ROUTER_NAME = "replicarouter"
"""What a router calls itself under `/version`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where to look. `admin` "" is the admin port's default at the same host; `replicas` replace what it
    tells, and with `router_only` nobody is asked for them. Keys are empty where none is needed: `key` is for
    `url`, `token` for the admin API, at another host only where `admin` names it, and `replica_key` for the
    replicas; `spare_key` is sent only to replicas that have answered 401 without."""

    url: str
    admin: str = ""
    replicas: tuple[str, ...] = ()
    router_only: bool = False
    key: str = ""
    token: str = ""
    replica_key: str = ""
    spare_key: str = ""


async def discover(
    place: Place, wishes: Wishes, session: aiohttp.ClientSession, clock: Clock, source: Random
) -> Scene:
    """Look around; raises `CheckError` when nothing answers at the address, it wants a
    key, or it is not what there is to check."""
    make = _Maker(session, clock, Meter())
    main = make.door(_name_of(place.url), place.url, place.key)
    router = await _is_router(main)
    if router:
        main.name = "the router"
        behind = await _behind(place, make)
    elif place.router_only:
        raise CheckError("no router is here, as --router-only wants")
    listing = await _list(main, KEY)
    if listing.denied:
        raise CheckError(f"{listing.problem}: {listing.cure}")
    if not router:
        behind = _Behind((_replica(main, listing, {}),), None, None)
    return Scene(
        main=main,
        router=router,
        replicas=behind.replicas,
        admin=behind.admin,
        blind=behind.blind,
        listed=listing.cards,
        unlisted=listing.problem,
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

    def door(self, name: str, url: str, key: str, spare: str = "") -> Door:
        door = Door(name, url, self.session, self.clock, key=key, meter=self.meter)
        door.spare = spare
        return door


@dataclass(frozen=True, slots=True)
class _Behind:
    """The replicas; the admin API where it answers, and why they are not known where it does not."""

    replicas: Sequence[Replica]
    admin: Door | None
    blind: Finding | None


@dataclass(frozen=True, slots=True)
class _Listing:
    """The model cards of a door, or what is wrong and what helps. `denied`: it wants another key."""

    cards: Sequence[Mapping[str, object]] = ()
    problem: str = ""
    cure: str = ""
    denied: bool = False


async def _behind(place: Place, make: _Maker) -> _Behind:
    if place.router_only:
        return _Behind((), None, skipped("only the router is checked (--router-only)"))
    admin = _admin(place, make)
    rows, blind = await _rows(admin, withheld=place.token != admin.key)
    if place.replicas:
        known = {str(row["url"]).rstrip("/"): row for row in rows}
        rows = [{"url": url, **known.get(url.rstrip("/"), {})} for url in place.replicas]
    looks = await together(
        _look(make.door(_row_name(row), str(row["url"]), place.replica_key, place.spare_key), row)
        for row in rows
    )
    replicas = tuple(look for look in looks if isinstance(look, Replica))
    return _Behind(replicas, None if blind else admin, None if place.replicas else blind)


def _admin(place: Place, make: _Maker) -> Door:
    """The admin API, which gets no token where its address is a guess: that is plain HTTP, and anybody may
    answer there."""
    address = place.admin or _beside(place.url)
    trusted = place.admin or is_loopback(urlsplit(address).hostname or "")
    return make.door("the admin API", address, place.token if trusted else "")


async def _is_router(main: Door) -> bool:
    reply = await main.get("/version")
    if reply.status in DENIED:
        if "admin token" in reason_in(reply.body):
            raise _wrong_port(main)
        raise Refused(reply.place, reply.status, f"{KEY.trouble(main.key)}: {KEY.cure(main.key)}")
    try:
        router = reply.document().get("name") == ROUTER_NAME
    except CheckError:
        return False
    if router and _rows_in(await main.get("/admin/replicas")) is not None:
        raise _wrong_port(main)
    return router


def _wrong_port(main: Door) -> CheckError:
    other = _beside(main.url, CLIENTS_PORT)
    return CheckError(f"this is the operator's port; check the clients' port, such as {other}")


async def _rows(admin: Door, *, withheld: bool) -> tuple[Sequence[Mapping[str, object]], Finding | None]:
    """The replicas as the admin API tells them, or why it does not; `withheld`: there is a token, which is
    not sent there."""
    told = f"the admin API at {admin.url}"
    try:
        reply = await admin.get("/admin/replicas")
    except NoAnswer:
        return [], failed(f"{told} does not answer", "give --admin URL")
    rows = _rows_in(reply)
    if rows is not None:
        return rows, None
    if reply.status not in DENIED:
        return [], failed(f"{told} answers {reply.status}, as another program would", "give --admin URL")
    reason = reason_in(reply.body)
    if "loopback" in reason:
        cure = "set the router's admin.token and give it with --token"
        return [], failed(f"{told} answers {reply.status}: {reason.rstrip('.')}", cure)
    if withheld:
        why = f"{TOKEN.trouble('')}, which is sent to another host only if --admin names it"
        return [], failed(f"{told} answers {reply.status}: {why}", f"give --admin {admin.url}, if that is it")
    return [], failed(f"{told} answers {reply.status}: {TOKEN.trouble(admin.key)}", TOKEN.cure(admin.key))


def _rows_in(reply: Reply) -> Sequence[Mapping[str, object]] | None:
    """The replicas in an answer of the admin API; None when it is none."""
    try:
        listed = reply.document().get("replicas")
    except CheckError:
        return None
    if not isinstance(listed, list):
        return None
    return [row for row in listed if isinstance(row, dict) and isinstance(row.get("url"), str)]


async def _look(door: Door, row: Mapping[str, object]) -> Replica:
    return _replica(door, await _list(door, REPLICA_KEY), row)


def _replica(door: Door, listing: _Listing, row: Mapping[str, object]) -> Replica:
    return Replica(
        door=door,
        cards=listing.cards,
        problem=listing.problem,
        cure=listing.cure,
        state=str(row.get("state") or ""),
        why=str(row.get("why") or ""),
        version=str(row.get("engine_version") or ""),
    )


async def _list(door: Door, secret: Secret) -> _Listing:
    """The model cards of a door, whose key is a secret of this kind."""
    try:
        listed = (await door.get("/v1/models")).document().get("data")
    except NoAnswer as error:
        return _Listing(problem=str(error), cure=START)
    except Refused as refusal:
        if refusal.status in DENIED:
            why = f"{door.name} answers {refusal.status}: {secret.trouble(door.key)}"
            return _Listing(problem=why, cure=secret.cure(door.key), denied=True)
        return _Listing(problem=str(refusal), cure="look into its log")
    except CheckError as error:
        return _Listing(problem=str(error), cure="is another program answering?")
    cards = [card for card in listed if isinstance(card, dict)] if isinstance(listed, list) else []
    cards = [card for card in cards if isinstance(card.get("id"), str)]
    if not cards:
        return _Listing(problem=f"{door.name} lists no model", cure="look into its log")
    return _Listing(cards)


def _row_name(row: Mapping[str, object]) -> str:
    return str(row.get("name") or _name_of(str(row["url"])))


def _name_of(url: str) -> str:
    return urlsplit(url).netloc


def _beside(url: str, port: int = ADMIN_PORT) -> str:
    """Another port at the host of `url`, by default the admin port, which speaks plain HTTP."""
    host = urlsplit(url).hostname or ""
    name = f"[{host}]" if ":" in host else host
    return urlunsplit(("http", f"{name}:{port}", "", "", ""))
