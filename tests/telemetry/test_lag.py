"""How late the loop is."""

import asyncio

import pytest

from replicarouter.tasks import TaskSet
from replicarouter.telemetry.lag import PERIOD, LoopLag
from tests.fakes.wire import eventually


class Readings:
    """A clock that shows one reading after the other, and then the last for ever."""

    def __init__(self, *readings: float) -> None:
        self.readings = list(readings)

    def __call__(self) -> float:
        return self.readings.pop(0) if len(self.readings) > 1 else self.readings[0]


def test_nothing_is_late_before_the_first_look() -> None:
    assert LoopLag(Readings(0.0)).seconds == 0


@pytest.mark.parametrize(("woken", "late"), [(PERIOD, 0.0), (PERIOD + 0.5, 0.5), (PERIOD - 0.1, 0.0)])
async def test_the_delay_is_what_comes_on_top_of_the_period(woken: float, late: float) -> None:
    clock = Readings(0.0, woken, 0.0)
    lag = LoopLag(clock)
    tasks = TaskSet()
    tasks.start(lag.watch(), "lag")
    await eventually(lambda: len(clock.readings) == 1, "one look")
    await asyncio.sleep(0)
    await tasks.close()

    assert lag.seconds == pytest.approx(late)
