"""What requests say of replicas: ejection, trial, slow start, cool-off, stalls. No probes, no sockets."""

import gc
import logging
from dataclasses import dataclass, field
from typing import Any

import pytest

from replicarouter.engines.base import EngineReading
from replicarouter.errors import IdleTimeout, ResponseHeadTimeout, RouterError
from replicarouter.exchange import Exchange, Stage
from replicarouter.fleet.health import TICK, Health
from replicarouter.fleet.ledger import OUTSTANDING
from replicarouter.fleet.lifecycle import Event, State
from replicarouter.fleet.registry import Fleet, FleetListener
from replicarouter.fleet.replica import RAMP_START, Replica
from replicarouter.settings import Settings
from tests.scene import HandClock, a_fleet, an_exchange, replica_settings

SETTINGS = {
    "eject": {"consecutive_failures": 3, "base_seconds": 3, "max_seconds": 60, "max_share": 0.5},
    "health": {"slow_start": 10, "stall_after": 30, "stall_end": 120},
    "scrape": {"interval": 1},
}


class Room(FleetListener):
    """Counts how often a replica was said to take requests, and whether it had room then."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, bool]] = []

    def ready(self, replica: Replica) -> None:
        self.heard.append((replica.name, replica.has_room))


@dataclass(slots=True, eq=False)
class Scene:
    """A fleet whose health is watched; the clock is moved by hand."""

    fleet: Fleet
    clock: HandClock = field(default_factory=HandClock)
    settings: dict[str, Any] = field(default_factory=lambda: SETTINGS)
    health: Health = field(init=False)
    room: Room = field(default_factory=Room)
    serial: int = 0

    def __post_init__(self) -> None:
        replicas = [{"url": "http://a.invalid"}]
        settings = Settings.model_validate({"replicas": replicas, **self.settings})
        self.health = Health(self.fleet, settings, self.clock)
        self.fleet.listeners += [self.health, self.room]

    def __getitem__(self, name: str) -> Replica:
        return self.fleet.find(name)

    def fail(self, name: str, times: int = 1, reason: str = "http_500") -> None:
        for _ in range(times):
            self.health.failed(self[name], self.clock(), reason)

    def answer(self, name: str) -> None:
        self.health.answered(self[name])

    def wait(self, seconds: float) -> None:
        """Let time pass with its ticks."""
        end = self.clock() + seconds
        while self.clock() < end:
            self.clock.move(TICK)
            self.health.tick(self.clock())

    def begin(self, name: str, **fields: Any) -> "Running":
        """A request that `name` has, in the ledger as a lease would put it there."""
        now = self.clock()
        given = {"replica": name, "stage": Stage.SENT, "leased_at": now, "sent_at": now, **fields}
        self.serial += 1
        exchange = an_exchange(upstream_id=f"u{self.serial}", **given)
        return Running(self, exchange)

    def ejections(self) -> dict[tuple[str, ...], int]:
        return dict(self.fleet.ledger.ejections)


class Running:
    """One request in flight; notes the error by which it is ended from outside."""

    def __init__(self, scene: Scene, exchange: Exchange) -> None:
        self._scene = scene
        self.exchange = exchange
        exchange.on_interrupt = lambda: True
        scene.fleet.ledger.in_flight[exchange.upstream_id] = exchange
        self._count(1)

    @property
    def error(self) -> RouterError | None:
        return self.exchange.interrupted

    def end(self) -> None:
        del self._scene.fleet.ledger.in_flight[self.exchange.upstream_id]
        self._count(-1)

    def _count(self, step: int) -> None:
        replica = self._scene[self.exchange.replica]
        replica.cells[replica.row + self.exchange.stage] += step
        replica.cells[replica.row + OUTSTANDING] += step


@pytest.fixture
def scene() -> Scene:
    return Scene(a_fleet("a", "b"))


@pytest.fixture
def on_trial(scene: Scene) -> Scene:
    """A scene in which "a" is back from its first ejection."""
    scene.fail("a", 3)
    scene.wait(3)
    scene.room.heard.clear()
    assert (scene["a"].state, scene["a"].trial) == (State.READY, True)
    return scene


# Ejection


def test_failures_in_a_row_eject_a_replica_for_a_time(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.fail("a", 2)
    assert scene["a"].state is State.READY
    with caplog.at_level(logging.WARNING):
        scene.fail("a", reason="replica_disconnected")

    replica = scene["a"]
    assert (replica.state, replica.ejected_until) == (State.EJECTED, scene.clock() + 3)
    assert replica.why == "ejected for 3 s: replica_disconnected"
    assert [record.__dict__["why"] for record in caplog.records] == [replica.why]
    assert scene.ejections() == {("a", "replica_disconnected"): 1}
    assert scene.fleet.pool_for("m1").ready == [scene["b"]]


def test_an_answer_between_failures_begins_the_count_anew(scene: Scene) -> None:
    for _ in range(5):
        scene.fail("a", 2)
        scene.answer("a")
    assert scene["a"].state is State.READY


def test_busy_is_neither_a_failure_nor_an_answer(scene: Scene) -> None:
    scene.fail("a", 2)
    for _ in range(100):
        scene.health.busy(scene["a"], scene.clock(), None)
    states = [scene["a"].state]
    scene.fail("a")
    states.append(scene["a"].state)
    assert states == [State.READY, State.EJECTED]


def test_failures_of_requests_from_before_an_ejection_do_not_prolong_it(scene: Scene) -> None:
    scene.fail("a", 3)
    until = scene["a"].ejected_until
    scene.fail("a", 50)

    assert scene["a"].ejected_until == until
    assert scene.ejections() == {("a", "http_500"): 1}


def test_the_only_replica_is_never_ejected() -> None:
    scene = Scene(a_fleet("a"))
    scene.fail("a", 100)
    scene.health.leaving(scene["a"], scene.clock())
    assert (scene["a"].state, scene.ejections()) == (State.READY, {})


def test_at_most_a_share_of_a_pool_is_out_at_a_time() -> None:
    scene = Scene(a_fleet("a", "b", "c", "d"))
    for name in "abcd":
        scene.fail(name, 10)
    assert [scene[name].state for name in "abcd"] == [State.EJECTED, State.EJECTED, State.READY, State.READY]


def test_who_could_not_be_ejected_is_when_there_is_room_again(scene: Scene) -> None:
    scene.fail("a", 3)
    scene.fail("b", 3)
    states = [scene["b"].state]
    scene.wait(3)
    scene.fail("b")
    states.append(scene["b"].state)
    assert states == [State.READY, State.EJECTED]


def test_an_engine_that_shuts_down_is_ejected_at_once(scene: Scene) -> None:
    scene.health.leaving(scene["a"], scene.clock())
    assert scene["a"].state is State.EJECTED
    assert scene.ejections() == {("a", "shutting_down"): 1}


@pytest.mark.parametrize("event", [Event.FAILED, Event.LISTS_NOTHING])
def test_who_is_out_already_is_not_ejected(scene: Scene, event: Event) -> None:
    scene.fleet.tell(scene["a"], event, "said so")
    state = scene["a"].state
    scene.fail("a", 10)
    scene.health.leaving(scene["a"], scene.clock())
    assert (scene["a"].state, scene.ejections()) == (state, {})


# Return


def test_an_ejected_replica_returns_on_trial_when_its_time_is_over(scene: Scene) -> None:
    scene.fail("a", 3)
    scene.wait(2.75)
    assert scene["a"].state is State.EJECTED
    scene.wait(TICK)

    assert (scene["a"].state, scene["a"].trial) == (State.READY, True)
    assert scene.room.heard == [("a", True)]
    assert scene.fleet.pool_for("m1").bounded
    assert scene["a"].share(scene.clock()) == 1.0


def test_an_ejected_replica_returns_early_when_the_others_are_gone(scene: Scene) -> None:
    scene.fail("a", 3)
    scene.fleet.tell(scene["b"], Event.FAILED, "refuses connections")
    scene.wait(TICK)
    assert (scene["a"].state, scene["a"].trial) == (State.READY, True)


def test_passed_probes_do_not_shorten_an_ejection(scene: Scene) -> None:
    scene.fail("a", 3)
    scene.fleet.tell(scene["a"], Event.PASSED, "probes pass")
    assert scene["a"].state is State.EJECTED


def test_an_answer_ends_a_trial_well_and_a_slow_start_follows(on_trial: Scene) -> None:
    on_trial.answer("a")

    assert not on_trial["a"].trial
    assert not on_trial.fleet.pool_for("m1").bounded
    assert on_trial.room.heard == [("a", True)]
    assert on_trial["a"].share(on_trial.clock()) == RAMP_START
    assert on_trial["a"].share(on_trial.clock() + 10) == 1.0


def test_a_failure_in_a_trial_ejects_at_once_for_longer(on_trial: Scene) -> None:
    on_trial.fail("a")

    assert on_trial["a"].state is State.EJECTED
    assert not on_trial["a"].trial
    assert on_trial["a"].ejected_until == on_trial.clock() + 6
    assert on_trial.ejections() == {("a", "http_500"): 2}


def test_a_busy_replica_has_passed_its_trial(on_trial: Scene) -> None:
    on_trial.health.busy(on_trial["a"], on_trial.clock(), None)
    assert not on_trial["a"].trial
    assert on_trial["a"].cooling(on_trial.clock())


def test_a_trial_without_a_result_goes_on(on_trial: Scene) -> None:
    request = on_trial.begin("a")
    assert not on_trial["a"].has_room
    request.end()
    on_trial.wait(100)
    assert (on_trial["a"].trial, on_trial["a"].has_room) == (True, True)


def test_a_trial_ends_well_when_its_answer_has_begun(on_trial: Scene) -> None:
    """The answer may be a stream that goes on for an hour."""
    request = on_trial.begin("a")
    on_trial.wait(1)
    assert on_trial["a"].trial
    request.exchange.head_at, request.exchange.status = on_trial.clock(), 200
    on_trial.wait(TICK)
    assert not on_trial["a"].trial


@pytest.mark.parametrize("status", [429, 500, 503])
def test_an_answer_that_does_not_speak_for_it_ends_no_trial(on_trial: Scene, status: int) -> None:
    request = on_trial.begin("a")
    request.exchange.head_at, request.exchange.status = on_trial.clock(), status
    on_trial.wait(1)
    assert on_trial["a"].trial


def test_a_stream_from_before_an_ejection_ends_no_trial(scene: Scene) -> None:
    old = scene.begin("a", stage=Stage.STREAMING, head_at=scene.clock(), status=200)
    scene.fail("a", 3)
    scene.wait(4)
    assert scene["a"].trial
    assert scene["a"].has_room
    old.end()


def test_requests_from_before_an_ejection_leave_no_room_when_they_end(scene: Scene) -> None:
    older = [scene.begin("a", stage=Stage.STREAMING) for _ in range(3)]
    scene.fail("a", 3)
    scene.wait(4)
    assert scene["a"].has_room
    scene.begin("a")
    room = [scene["a"].has_room]
    for request in older:
        request.end()
        scene.wait(TICK)
        room.append(scene["a"].has_room)
    assert room == [False] * 4


def test_a_failure_of_an_older_request_does_not_count_in_a_trial(on_trial: Scene) -> None:
    now = on_trial.clock()
    on_trial.health.failed(on_trial["a"], now, "idle_timeout", leased_at=now - 10)
    assert on_trial["a"].trial
    on_trial.health.failed(on_trial["a"], now + 1, "idle_timeout", leased_at=now)
    assert on_trial["a"].state is State.EJECTED


def test_a_failed_trial_ends_when_the_others_are_out(on_trial: Scene) -> None:
    """One request at a time would be too few for a pool that has nobody else."""
    on_trial.fail("b", 3)
    assert on_trial["b"].state is State.EJECTED
    on_trial.fail("a")
    assert (on_trial["a"].state, on_trial["a"].trial) == (State.READY, False)


def test_a_replica_that_came_up_anew_after_an_ejection_is_on_trial_too(scene: Scene) -> None:
    scene.fail("a", 3)
    scene.fleet.tell(scene["a"], Event.FAILED, "refuses connections")
    scene.fleet.tell(scene["a"], Event.PASSED, "probes pass")
    assert (scene["a"].state, scene["a"].trial) == (State.READY, True)


def test_an_ejection_that_ends_while_it_drains_is_followed_by_a_trial_afterwards(scene: Scene) -> None:
    scene.fail("a", 3)
    scene.fleet.drain(scene["a"])
    scene.wait(4)
    assert (scene["a"].state, scene["a"].health) == (State.DRAINING, State.READY)
    scene.fleet.undrain(scene["a"])
    assert scene["a"].trial


# Slow start


def test_who_is_ready_from_the_start_has_its_full_share(scene: Scene) -> None:
    assert scene["a"].share(scene.clock()) == 1.0


def test_a_newcomer_and_a_returner_start_slowly(scene: Scene) -> None:
    scene.fleet.tell(scene["a"], Event.FAILED, "gone")
    scene.fleet.tell(scene["a"], Event.PASSED, "back")
    assert scene["a"].share(scene.clock()) == RAMP_START
    scene.wait(5)
    assert scene["a"].share(scene.clock()) == 0.5
    scene.wait(5)
    assert scene["a"].share(scene.clock()) == 1.0


def test_other_settings_are_no_return(scene: Scene) -> None:
    scene.fleet.tell(scene["a"], Event.FAILED, "gone")
    scene.fleet.tell(scene["a"], Event.PASSED, "back")
    scene.wait(5)
    scene.fleet.limit_each(100)
    scene.fleet.change(scene["a"], replica_settings("a", weight=2.0))
    scene.fleet.list_models(scene["a"], [{"id": "m1"}, {"id": "m2"}])
    assert scene["a"].share(scene.clock()) == 0.5 * 2.0
    assert scene["b"].share(scene.clock()) == 1.0


# Cool-off


def test_a_busy_replica_cools_and_stays_a_candidate(scene: Scene) -> None:
    scene.health.busy(scene["a"], scene.clock(), 5.0)
    assert scene["a"].cooling(scene.clock() + 4.9)
    assert scene["a"].state is State.READY
    assert scene["a"] in scene.fleet.pool_for("m1").ready


def test_an_answer_makes_the_next_cool_off_a_first_one(scene: Scene) -> None:
    scene.health.busy(scene["a"], scene.clock(), None)
    scene.clock.move(1)
    scene.answer("a")
    scene.health.busy(scene["a"], scene.clock(), None)
    assert scene["a"].cool_until == scene.clock() + 1


# Stalls


def freeze(scene: Scene, seconds: float) -> None:
    """Let time pass in which the engine of "a" answers its metrics, and does not step."""
    for _ in range(int(seconds)):
        scene["a"].take(EngineReading(steps=7.0), scene.clock())
        scene.wait(1)


def test_a_stalled_replica_is_taken_out_and_says_why(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.begin("a")
    with caplog.at_level(logging.WARNING):
        freeze(scene, 32)

    replica = scene["a"]
    assert (replica.state, replica.stalled) == (State.UNHEALTHY, True)
    assert replica.why == "stalled: requests, but no byte and no step of its engine"
    assert [record.__dict__["why"] for record in caplog.records] == [replica.why]
    assert scene.ejections() == {("a", "stalled"): 1}


def test_where_no_silence_is_too_long_nothing_stalls() -> None:
    settings = {**SETTINGS, "health": {"stall_after": 0, "stall_end": 0}}
    scene = Scene(a_fleet("a", "b"), settings=settings)
    request = scene.begin("a")
    scene["a"].probe_failing = True
    scene.wait(300)
    assert (scene["a"].state, request.error) == (State.READY, None)


def test_a_short_limit_is_kept_to() -> None:
    settings = {**SETTINGS, "health": {"stall_after": 4 * TICK, "stall_end": 0}}
    scene = Scene(a_fleet("a", "b"), settings=settings)
    scene.begin("a")
    scene["a"].probe_failing = True
    scene.wait(6 * TICK)
    assert scene["a"].stalled


def test_a_stall_needs_no_other_replica(caplog: pytest.LogCaptureFixture) -> None:
    """To send it more would only make more clients wait."""
    scene = Scene(a_fleet("a"))
    scene.begin("a")
    with caplog.at_level(logging.WARNING):
        freeze(scene, 32)
    assert scene["a"].state is State.UNHEALTHY


def test_a_replica_whose_probes_fail_stalls_too(scene: Scene) -> None:
    request = scene.begin("a", stage=Stage.STREAMING, head_at=scene.clock(), status=200)
    scene["a"].probe_failing = True
    scene.fleet.tell(scene["a"], Event.FAILED, "refuses connections")
    scene.wait(31)
    assert scene["a"].why == "stalled: requests, but no byte and failed probes"
    assert request.error is None
    scene.wait(90)
    assert isinstance(request.error, IdleTimeout)


@pytest.mark.parametrize(
    ("stage", "error"), [(Stage.SENT, ResponseHeadTimeout), (Stage.STREAMING, IdleTimeout)]
)
def test_the_requests_of_a_stall_are_ended_in_the_end(
    scene: Scene, stage: Stage, error: type[RouterError], caplog: pytest.LogCaptureFixture
) -> None:
    request, elsewhere = scene.begin("a", stage=stage), scene.begin("b")
    freeze(scene, 119)
    assert request.error is None
    freeze(scene, 3)
    assert isinstance(request.error, error)
    assert "stalled" in request.error.message
    counts = [record.__dict__["count"] for record in caplog.records if "count" in record.__dict__]
    assert counts == [1]
    assert elsewhere.error is None


@pytest.mark.parametrize(
    "fields",
    [{"held": True}, {"status": 101}, {"stage": Stage.CONNECTING}],
    ids=["its client takes nothing", "an upgraded connection", "not sent yet"],
)
def test_requests_that_expect_no_byte_are_no_sign_of_a_stall(scene: Scene, fields: dict[str, Any]) -> None:
    request = scene.begin("a", **fields)
    freeze(scene, 200)
    assert (scene["a"].state, request.error) == (State.READY, None)


def test_a_step_ends_a_stall_and_the_next_passed_probe_brings_it_back(scene: Scene) -> None:
    scene.begin("a")
    freeze(scene, 32)
    scene["a"].take(EngineReading(steps=8.0), scene.clock())
    scene.wait(TICK)
    assert not scene["a"].stalled

    scene.fleet.tell(scene["a"], Event.PASSED, "probes pass")
    assert scene["a"].state is State.READY


def test_a_stalled_replica_without_requests_is_tried_after_its_time(scene: Scene) -> None:
    request = scene.begin("a")
    freeze(scene, 32)
    scene.wait(20)
    assert scene["a"].state is State.UNHEALTHY
    request.end()
    scene.wait(TICK)
    assert (scene["a"].state, scene["a"].trial, scene["a"].stalled) == (State.READY, True, False)


def test_a_stalled_replica_is_not_tried_while_its_probes_fail(scene: Scene) -> None:
    request = scene.begin("a")
    freeze(scene, 32)
    request.end()
    scene["a"].probe_failing = True
    scene.wait(100)
    assert scene["a"].state is State.UNHEALTHY


def test_a_trial_that_stalls_takes_its_replica_out_for_longer(scene: Scene) -> None:
    first = scene.begin("a")
    freeze(scene, 32)
    first.end()
    freeze(scene, 5)
    assert scene["a"].trial
    second = scene.begin("a")
    freeze(scene, 32)
    assert (scene["a"].state, scene["a"].trial) == (State.UNHEALTHY, False)
    second.end()
    freeze(scene, 2)
    assert scene["a"].state is State.UNHEALTHY
    freeze(scene, 8)
    assert scene["a"].trial


# Nothing else


def test_nothing_here_changes_a_count(scene: Scene) -> None:
    """Ejections, returns, stalls and probes: the counts belong to the requests."""
    requests = [scene.begin("a", stage=Stage.STREAMING) for _ in range(5)]
    before = list(scene.fleet.ledger.cells)
    scene.fail("a", 3)
    scene.wait(10)
    scene.fail("a")
    scene.health.busy(scene["a"], scene.clock(), None)
    scene.health.leaving(scene["a"], scene.clock())
    freeze(scene, 200)
    scene.fleet.tell(scene["a"], Event.FAILED, "gone")
    scene.fleet.tell(scene["a"], Event.PASSED, "back")

    assert list(scene.fleet.ledger.cells) == before
    assert len(scene.fleet.ledger.in_flight) == len(requests)


def test_who_has_left_is_forgotten(scene: Scene) -> None:
    scene.fail("a", 2)
    settings = scene["a"].settings
    scene.fleet.remove(scene["a"])
    again = scene.fleet.add(settings)
    scene.fleet.list_models(again, [{"id": "m1"}])
    scene.fleet.tell(again, Event.PASSED, "probes pass")
    scene.fail("a")
    assert scene["a"].state is State.READY


def test_replicas_that_come_and_go_leave_nothing_behind(scene: Scene) -> None:
    def alive() -> int:
        gc.collect()
        return sum(isinstance(one, Replica) for one in gc.get_objects())

    before = alive()
    for number in range(50):
        replica = scene.fleet.add(replica_settings(f"n{number}"))
        scene.fleet.list_models(replica, [{"id": "m1"}])
        scene.fleet.tell(replica, Event.PASSED, "probes pass")
        scene.fail(replica.name, 3)
        scene.health.busy(replica, scene.clock(), None)
        request = scene.begin(replica.name)
        scene.wait(1)
        request.end()
        scene.fleet.remove(replica)
        del replica, request
    assert alive() == before
