"""What was lost of logs and traces."""

import logging
import os

import pytest

from replicarouter.telemetry.families.losses import read
from replicarouter.telemetry.line_writer import LineWriter
from replicarouter.telemetry.logs import LineHandler
from replicarouter.telemetry.sources import Sources
from tests.scene import a_fleet
from tests.telemetry.conftest import Watched


def counted(sources: Sources) -> dict[str, float]:
    return {
        sample.name.removeprefix("replicarouter_"): sample.value
        for family in read(sources)
        for sample in family.metric().samples
    }


def test_nothing_is_lost_at_first() -> None:
    assert counted(Watched(a_fleet("a")).sources) == {"log_lines_dropped_total": 0, "traces_dropped_total": 0}


def test_lines_that_found_no_room_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    handler = LineHandler(LineWriter(writer, room=1))
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    handler.handle(logging.makeLogRecord({"msg": "too long for the room"}))
    assert counted(Watched(a_fleet("a")).sources)["log_lines_dropped_total"] == 1
    os.close(reader)


def test_lines_that_found_no_disk_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    handler = LineHandler(LineWriter(os.open("/dev/full", os.O_WRONLY)))
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    handler.handle(logging.makeLogRecord({"msg": "no space left on device"}))
    handler.flush()
    assert counted(Watched(a_fleet("a")).sources)["log_lines_dropped_total"] == 1
