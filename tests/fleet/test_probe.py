"""Active health checks against a real server."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from replicarouter.fleet.fetch import Client
from replicarouter.fleet.ledger import Ledger
from replicarouter.fleet.lifecycle import Event, State
from replicarouter.fleet.probe import Prober
from replicarouter.fleet.registry import Fleet
from replicarouter.fleet.replica import Replica
from replicarouter.settings import HealthSettings
from tests.fakes.wire import eventually
from tests.fleet.conftest import Engine
from tests.scene import an_exchange, replica_settings

Watch = Callable[..., tuple[Prober, Replica]]


@pytest_asyncio.fixture
async def watch(engine: Engine, client: Client) -> AsyncIterator[Watch]:
    """A prober over a fleet of the engine alone; options are those of `health`."""
    probers: list[Prober] = []

    def make(own: dict[str, Any] | None = None, **health: Any) -> tuple[Prober, Replica]:
        fleet = Fleet([replica_settings("a", **{"url": engine.url, **(own or {})})], Ledger())
        settings = HealthSettings(**{"interval": 3600.0, "timeout": 5.0, **health})
        prober = Prober(fleet, client, settings, time.monotonic)
        probers.append(prober)
        return prober, fleet.replicas[0]

    yield make
    for prober in probers:
        await prober.stop()


async def test_a_healthy_replica_that_lists_models_is_ready(watch: Watch) -> None:
    prober, replica = watch()
    await prober.probe(replica)

    assert replica.state is State.READY
    assert replica.cards == ({"id": "m1"},)


async def test_a_base_path_is_joined(engine: Engine, watch: Watch) -> None:
    engine.says("/base/health", b"")
    engine.says("/base/v1/models", b'{"data":[{"id":"m2"}]}')
    prober, replica = watch({"url": f"{engine.url}/base"})
    await prober.probe(replica)

    assert replica.cards == ({"id": "m2"},)


async def test_only_the_model_list_is_asked_with_the_replicas_key(engine: Engine, watch: Watch) -> None:
    prober, replica = watch({"api_key": "secret"})
    await prober.probe(replica)

    assert engine.asked == [("/health", None), ("/v1/models", "Bearer secret"), ("/version", None)]


async def test_configured_models_are_not_asked_for(engine: Engine, watch: Watch) -> None:
    prober, replica = watch({"models": ["m9"]})
    await prober.probe(replica)

    assert replica.state is State.READY
    assert engine.times("/v1/models") == 0


async def test_a_replica_that_lists_nothing_is_still_loading(engine: Engine, watch: Watch) -> None:
    engine.says("/v1/models", b'{"data":[]}')
    prober, replica = watch()
    await prober.probe(replica)

    assert replica.state is State.LOADING
    assert "lists no model" in replica.why
    assert replica.cards is None


async def test_a_ready_replica_that_lists_nothing_any_more_is_loading_again(
    engine: Engine, watch: Watch
) -> None:
    prober, replica = watch()
    await prober.probe(replica)
    engine.says("/v1/models", b'{"data":[]}')
    await prober.probe(replica)

    assert replica.state is State.LOADING


SICK = {
    "health 503": ("/health", 503, b"", "/health answers 503"),
    "health 500": ("/health", 500, b"", "/health answers 500"),
    "health 302": ("/health", 302, b"", "/health answers 302"),
    "models 401": ("/v1/models", 401, b"", "/v1/models answers 401"),
    "models 404": ("/v1/models", 404, b"", "/v1/models answers 404"),
    "no JSON": ("/v1/models", 200, b"<html>", "something else than a model list"),
    "a list": ("/v1/models", 200, b"[]", "something else than a model list"),
    "text": ("/v1/models", 200, b'"m1"', "something else than a model list"),
    "data is null": ("/v1/models", 200, b'{"data":null}', "something else than a model list"),
    "cards are text": ("/v1/models", 200, b'{"data":["m1"]}', "something else than a model list"),
    "cards without id": ("/v1/models", 200, b'{"data":[{}]}', "something else than a model list"),
    "nothing at all": ("/v1/models", 200, b"", "something else than a model list"),
}


@pytest.mark.parametrize("name", SICK)
async def test_a_failed_probe_says_why_and_two_make_a_replica_unhealthy(
    engine: Engine, watch: Watch, name: str
) -> None:
    path, status, body, why = SICK[name]
    prober, replica = watch(unhealthy_after=2)
    await prober.probe(replica)
    engine.says(path, body, status=status)

    seen = []
    for _ in range(2):
        await prober.probe(replica)
        seen.append(replica.state)
        assert why in replica.why
    assert seen == [State.READY, State.UNHEALTHY]


async def test_a_replica_that_failed_once_says_how_often_it_may(engine: Engine, watch: Watch) -> None:
    prober, replica = watch(unhealthy_after=2)
    await prober.probe(replica)
    engine.says("/health", b"", status=503)
    await prober.probe(replica)

    assert replica.why == "/health answers 503 (1 of 2 times)"


async def test_a_card_whose_id_is_no_text_is_left_out(engine: Engine, watch: Watch) -> None:
    engine.says("/v1/models", b'{"data":[{"id":1},{"id":"m1"}]}')
    prober, replica = watch()
    await prober.probe(replica)

    assert replica.cards == ({"id": "m1"},)


async def test_one_passed_probe_between_failures_starts_the_count_anew(engine: Engine, watch: Watch) -> None:
    prober, replica = watch(unhealthy_after=2)
    await prober.probe(replica)
    for status in (503, 200, 503):
        engine.says("/health", b"", status=status)
        await prober.probe(replica)

    assert replica.state is State.READY


async def test_an_unhealthy_replica_returns_after_enough_passed_probes(engine: Engine, watch: Watch) -> None:
    prober, replica = watch(unhealthy_after=1, healthy_after=3)
    engine.says("/health", b"", status=503)
    await prober.probe(replica)
    engine.says("/health", b"")

    states = []
    for _ in range(3):
        await prober.probe(replica)
        states.append(replica.state)
    assert states[:2] != [State.READY, State.READY]
    assert states[2] is State.READY


async def test_a_refused_probe_makes_a_replica_unhealthy_at_once(engine: Engine, watch: Watch) -> None:
    prober, replica = watch(unhealthy_after=5)
    await prober.probe(replica)
    await engine.stop()
    await prober.probe(replica)

    assert replica.state is State.UNHEALTHY
    assert replica.why == "refuses connections"


async def test_a_replica_that_does_not_answer_in_time_fails(engine: Engine, watch: Watch) -> None:
    prober, replica = watch(unhealthy_after=1, timeout=0.1)
    engine.silent = True
    await prober.probe(replica)

    assert "does not answer within 0.1 s" in replica.why


async def test_one_probe_of_a_replica_runs_at_a_time(engine: Engine, watch: Watch) -> None:
    prober, replica = watch()
    engine.silent = True
    first = asyncio.ensure_future(prober.probe(replica))
    await eventually(lambda: engine.times("/health"), "the first probe is under way")

    await prober.probe(replica)
    assert engine.times("/health") == 1
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)


async def test_a_refused_request_triggers_a_probe_at_once(engine: Engine, watch: Watch) -> None:
    prober, replica = watch()
    prober.soon(replica)
    prober.soon(replica)
    await eventually(lambda: replica.state is State.READY, "the probe has passed")

    assert engine.times("/health") == 1


async def test_probes_go_on_until_stopped(engine: Engine, watch: Watch) -> None:
    prober, replica = watch(interval=0.01)
    prober.start()
    await eventually(lambda: engine.times("/health") >= 3, "three probes")
    await prober.stop()
    asked = engine.times("/health")
    await prober.probe(replica)

    assert engine.times("/health") == asked + 1


async def test_a_round_asks_every_replica(engine: Engine, client: Client) -> None:
    names = ("a", "b", "c")
    fleet = Fleet([replica_settings(name, url=f"{engine.url}/{name}") for name in names], Ledger())
    for name in names:
        engine.says(f"/{name}/health", b"")
        engine.says(f"/{name}/v1/models", b'{"data":[{"id":"m1"}]}')
    await Prober(fleet, client, HealthSettings(), time.monotonic).probe_all()

    assert [replica.state for replica in fleet] == [State.READY] * 3


VERSIONS = {
    b'{"version":"0.32.0"}': "0.32.0",
    b'{"version":"' + b"1" * 100 + b'"}': "1" * 64,
    b'{"version":1}': "",
    b"{}": "",
    b"[]": "",
    b"0.32.0": "",
    b"": "",
}


@pytest.mark.parametrize("document", VERSIONS)
async def test_the_version_is_what_the_engine_says(engine: Engine, watch: Watch, document: bytes) -> None:
    engine.says("/version", document)
    prober, replica = watch()
    await prober.probe(replica)

    assert replica.engine_version == VERSIONS[document]
    assert replica.state is State.READY


async def test_the_version_is_asked_once_each_time_a_replica_comes_up(engine: Engine, watch: Watch) -> None:
    prober, replica = watch(unhealthy_after=1)
    for _ in range(3):
        await prober.probe(replica)
    assert engine.times("/version") == 1

    engine.says("/health", b"", status=503)
    await prober.probe(replica)
    engine.says("/health", b"")
    engine.says("/version", b'{"version":"2"}')
    await prober.probe(replica)
    assert (engine.times("/version"), replica.engine_version) == (2, "2")


async def test_a_replica_that_does_not_say_its_version_is_healthy(engine: Engine, watch: Watch) -> None:
    prober, replica = watch(unhealthy_after=1, timeout=0.2)
    engine.silent_at = "/version"
    await prober.probe(replica)

    assert replica.state is State.READY


async def test_a_model_list_that_comes_in_pieces_is_read_whole(engine: Engine, watch: Watch) -> None:
    engine.held = asyncio.Event()
    engine.says("/v1/models", b'{"object":"list","da', b'ta":[{"id":"m1"}]}')
    prober, replica = watch()
    probe = asyncio.ensure_future(prober.probe(replica))
    await eventually(lambda: engine.times("/v1/models"), "the list is on its way")
    await asyncio.wait((probe,), timeout=0.05)
    engine.held.set()
    await probe

    assert replica.cards == ({"id": "m1"},)


async def test_a_host_that_is_no_name_fails_like_any_other(watch: Watch) -> None:
    prober, replica = watch({"url": "http://a..b:8000"})
    await prober.probe(replica)

    assert replica.state is not State.READY


# Bytes of responses count as passed probes


@pytest_asyncio.fixture
async def members(engine: Engine, client: Client) -> AsyncIterator[tuple[Fleet, Prober]]:
    """The fleet of the engine alone, ready, and its prober; two probes in a row are too many to fail."""
    fleet = Fleet([replica_settings("a", url=engine.url)], Ledger())
    settings = HealthSettings(interval=0.05, timeout=0.1, unhealthy_after=2)
    prober = Prober(fleet, client, settings, time.monotonic)
    fleet.listeners.append(prober)
    await prober.probe_all()
    yield fleet, prober
    await prober.stop()


def deliver(fleet: Fleet, at: float) -> None:
    """A response of the engine that is on its way, with a byte at this time."""
    fleet.ledger.in_flight["u"] = an_exchange(replica="a", last_byte_at=at)


@pytest.mark.parametrize("how", ["late", "503"])
async def test_a_replica_whose_responses_arrive_is_not_taken_out(
    engine: Engine, members: tuple[Fleet, Prober], how: str
) -> None:
    fleet, prober = members
    if how == "late":
        engine.silent = True
    else:
        engine.says("/health", b"", status=503)
    for _ in range(5):
        deliver(fleet, time.monotonic())
        await prober.probe(fleet.find("a"))
        assert fleet.find("a").state is State.READY

    fleet.ledger.in_flight.clear()
    fleet.find("a").heard_at = time.monotonic()
    await prober.probe(fleet.find("a"))
    assert fleet.find("a").state is State.READY


async def test_a_replica_whose_last_byte_is_old_is_taken_out(
    engine: Engine, members: tuple[Fleet, Prober]
) -> None:
    fleet, prober = members
    engine.silent = True
    deliver(fleet, time.monotonic() - 1.0)
    for _ in range(2):
        await prober.probe(fleet.find("a"))
    assert fleet.find("a").state is State.UNHEALTHY
    assert fleet.find("a").probe_failing


async def test_responses_bring_a_replica_back_whose_probes_get_no_answer(
    engine: Engine, members: tuple[Fleet, Prober]
) -> None:
    fleet, prober = members
    fleet.tell(fleet.find("a"), Event.FAILED, "does not answer")
    engine.silent = True
    deliver(fleet, time.monotonic())
    await prober.probe(fleet.find("a"))
    assert fleet.find("a").state is State.READY


async def test_responses_do_not_bring_a_replica_back_whose_port_was_closed(
    engine: Engine, members: tuple[Fleet, Prober]
) -> None:
    """They come from an engine that is going, and not from the one that is coming."""
    fleet, prober = members
    port = int(engine.url.rpartition(":")[2])
    await engine.stop()
    await prober.probe(fleet.find("a"))
    engine.silent = True
    await engine.listen(port)
    deliver(fleet, time.monotonic())
    await prober.probe(fleet.find("a"))
    assert fleet.find("a").state is State.UNHEALTHY


async def test_responses_do_not_bring_a_replica_back_that_says_it_is_ill(
    engine: Engine, members: tuple[Fleet, Prober]
) -> None:
    fleet, prober = members
    fleet.tell(fleet.find("a"), Event.FAILED, "/health answers 503")
    engine.says("/health", b"", status=503)
    deliver(fleet, time.monotonic())
    await prober.probe(fleet.find("a"))
    assert fleet.find("a").state is State.UNHEALTHY


async def test_a_closed_port_counts_whatever_still_arrives(
    engine: Engine, members: tuple[Fleet, Prober]
) -> None:
    """An engine that shuts down finishes its streams, and takes no more requests."""
    fleet, prober = members
    await engine.stop()
    deliver(fleet, time.monotonic())
    await prober.probe(fleet.find("a"))
    assert (fleet.find("a").state, fleet.find("a").why) == (State.UNHEALTHY, "refuses connections")


# Beside ejections and stalls


async def test_a_stalled_replica_stays_out_though_its_probes_pass(members: tuple[Fleet, Prober]) -> None:
    fleet, prober = members
    replica = fleet.find("a")
    replica.stalled = True
    fleet.tell(replica, Event.STALLED, "stalled: no step")
    for _ in range(3):
        await prober.probe(replica)
    assert (replica.state, replica.why) == (State.UNHEALTHY, "stalled: no step")

    replica.stalled = False
    await prober.probe(replica)
    assert replica.state is State.READY


async def test_a_stalled_replica_that_was_replaced_is_well(
    engine: Engine, members: tuple[Fleet, Prober]
) -> None:
    fleet, prober = members
    replica = fleet.find("a")
    replica.stalled = True
    fleet.tell(replica, Event.STALLED, "stalled: no step")
    port = int(engine.url.rpartition(":")[2])
    await engine.stop()
    await prober.probe(replica)
    assert (replica.reborn_at, replica.why) == (0.0, "refuses connections")

    await engine.listen(port)
    await prober.probe(replica)
    assert (replica.state, replica.stalled) == (State.READY, False)
    assert 0 < replica.reborn_at <= time.monotonic()


async def test_passed_probes_leave_an_ejected_replica_and_its_reason_alone(
    members: tuple[Fleet, Prober],
) -> None:
    fleet, prober = members
    replica = fleet.find("a")
    fleet.tell(replica, Event.EJECTED, "ejected for 3 s: http_500")
    await prober.probe(replica)
    assert (replica.state, replica.why) == (State.EJECTED, "ejected for 3 s: http_500")


async def test_an_ejected_replica_is_unhealthy_after_as_many_failures_as_a_ready_one(
    engine: Engine, members: tuple[Fleet, Prober]
) -> None:
    fleet, prober = members
    replica = fleet.find("a")
    fleet.tell(replica, Event.EJECTED, "ejected for 3 s: http_500")
    engine.says("/health", b"", status=503)
    states = []
    for _ in range(2):
        await prober.probe(replica)
        states.append(replica.state)
    assert states == [State.EJECTED, State.UNHEALTHY]


async def test_a_replica_on_trial_says_so(members: tuple[Fleet, Prober]) -> None:
    fleet, prober = members
    fleet.find("a").begin_trial()
    await prober.probe(fleet.find("a"))
    assert "one at a time" in fleet.find("a").why


# Who comes and goes


async def test_a_new_replica_is_probed_at_once_and_then_on(
    engine: Engine, members: tuple[Fleet, Prober]
) -> None:
    fleet, prober = members
    prober.start()
    for path in ("/health", "/v1/models"):
        engine.says(f"/b{path}", *engine.answers[path][1])
    added = fleet.add(replica_settings("b", url=f"{engine.url}/b"))
    await eventually(lambda: added.state is State.READY, "the new one is ready")
    await eventually(lambda: engine.times("/b/health") >= 3, "it is probed again")


async def test_a_removed_replica_is_probed_no_more(engine: Engine, members: tuple[Fleet, Prober]) -> None:
    fleet, prober = members
    replica = fleet.find("a")
    prober.start()
    await eventually(lambda: engine.times("/health") >= 3, "it is probed")
    fleet.remove(replica)
    other = fleet.add(replica_settings("b", url=f"{engine.url}/b"))
    # By then what was on its way has arrived.
    await eventually(lambda: engine.times("/b/health") >= 2, "others are probed")
    asked = len(engine.asked)
    prober.soon(replica)
    await prober.probe(replica)
    await eventually(lambda: engine.times("/b/health") >= 5, "others are probed on")

    assert [path for path, _ in engine.asked[asked:] if not path.startswith("/b/")] == []
    assert other in fleet


async def test_a_replica_that_is_removed_while_it_is_asked_is_not_moved(
    engine: Engine, members: tuple[Fleet, Prober]
) -> None:
    fleet, prober = members
    replica = fleet.find("a")
    engine.silent = True
    asked = engine.times("/health")
    probe = asyncio.ensure_future(prober.probe(replica))
    await eventually(lambda: engine.times("/health") > asked, "the probe is under way")
    fleet.remove(replica)
    await probe
    assert replica.health is State.READY
