"""Who comes in, and under which name."""

import inspect
from ipaddress import ip_network

import pytest
from multidict import CIMultiDict
from pydantic import SecretStr

from replicarouter.access import door as door_module
from replicarouter.access.door import Door, Visitor
from replicarouter.access.proxies import Proxies
from replicarouter.errors import InvalidApiKey
from replicarouter.settings import NamedKey

PEER = "192.0.2.7"


def key(secret: str, name: str) -> NamedKey:
    return NamedKey(name, SecretStr(secret))


ALICE, BOB = key("sk-a", "alice"), key("sk-b", "bob")


def fields(*pairs: tuple[str, str]) -> CIMultiDict[str]:
    return CIMultiDict(pairs)


def behind(*networks: str) -> Proxies:
    return Proxies([ip_network(network) for network in networks])


def test_without_keys_everybody_comes_in_under_the_address_of_the_connection() -> None:
    door = Door()
    assert not door.locked
    assert door.admit(fields(("Authorization", "Bearer anything")), PEER) == Visitor(PEER, None, True)
    assert door.admit(fields(("X-Forwarded-For", "203.0.113.1")), PEER).name == PEER


@pytest.mark.parametrize(
    "shown",
    [
        [("Authorization", "Bearer sk-a")],
        [("authorization", "bearer sk-a")],
        [("AUTHORIZATION", "BEARER  sk-a ")],
        [("x-api-key", "sk-a")],
        [("X-API-Key", "sk-a"), ("Authorization", "Bearer sk-a")],
        [("Authorization", "Bearer sk-a"), ("Authorization", "bearer sk-a")],
    ],
)
def test_a_key_opens_the_door_however_it_is_shown(shown: list[tuple[str, str]]) -> None:
    visitor = Door([BOB, ALICE]).admit(fields(*shown), PEER)
    assert visitor == Visitor("alice", "alice", True)


@pytest.mark.parametrize(
    "shown",
    [
        [],
        [("Authorization", "")],
        [("Authorization", "Bearer")],
        [("Authorization", "Bearer ")],
        [("Authorization", "sk-a")],
        [("Authorization", "Basic sk-a")],
        [("Authorization", "Bearer sk-c")],
        [("Authorization", "Bearer sk-a sk-b")],
        [("Authorization", "Bearer SK-A")],
        [("Authorization", "Bearer sk-a"), ("Authorization", "Bearer sk-b")],
        [("Authorization", "Bearer sk-a"), ("Authorization", "Basic eA==")],
        [("Authorization", "Bearer sk-a"), ("x-api-key", "sk-b")],
        [("x-api-key", "sk-a"), ("x-api-key", "sk-x")],
        [("x-api-key", "Bearer sk-a")],
        [("api-key", "sk-a")],
        [("Authorization", "Bearer \udcff")],
    ],
)
def test_whoever_shows_no_key_or_several_stays_outside(shown: list[tuple[str, str]]) -> None:
    with pytest.raises(InvalidApiKey) as caught:
        Door([ALICE, BOB]).admit(fields(*shown), PEER)
    assert "sk-" not in caught.value.message


def test_every_key_is_compared_in_constant_time() -> None:
    source = inspect.getsource(door_module.Door)
    loop = source[source.index("for known, name") :]
    assert "compare_digest" in loop
    assert "break" not in loop
    assert "return" not in loop[: loop.index("if found is None")]


def test_keys_can_be_replaced_while_the_door_is_in_use() -> None:
    door = Door([ALICE])
    door.replace([BOB])
    assert door.admit(fields(("x-api-key", "sk-b")), PEER).key_name == "bob"
    with pytest.raises(InvalidApiKey):
        door.admit(fields(("x-api-key", "sk-a")), PEER)
    door.replace([])
    assert not door.locked


def test_a_caller_may_have_several_keys() -> None:
    door = Door([key("old", "alice"), key("new", "alice")])
    assert {door.admit(fields(("x-api-key", one)), PEER).name for one in ("old", "new")} == {"alice"}


def test_door_does_not_show_its_keys() -> None:
    assert "sk-a" not in f"{Door([ALICE])!r} {ALICE!r} {vars(Door([ALICE]))}"


def test_name_is_the_address_that_a_trusted_proxy_has_seen() -> None:
    door = Door(proxies=behind("192.0.2.0/24"))
    visitor = door.admit(fields(("X-Forwarded-For", "203.0.113.1")), PEER)
    assert visitor == Visitor("203.0.113.1", None, True)


def test_a_stranger_names_nobody_and_what_it_says_goes_no_further() -> None:
    door = Door(proxies=behind("10.0.0.0/8"))
    visitor = door.admit(fields(("X-Forwarded-For", "203.0.113.1")), PEER)
    assert visitor == Visitor(PEER, None, False)


def test_name_of_a_key_comes_before_any_address() -> None:
    door = Door([ALICE], behind("192.0.2.0/24"))
    shown = fields(("x-api-key", "sk-a"), ("X-Forwarded-For", "203.0.113.1"))
    assert door.admit(shown, PEER) == Visitor("alice", "alice", True)
