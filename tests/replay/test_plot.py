"""Pictures of replays."""

import sys
from pathlib import Path

import pytest

from replicarouter.replay.plot import PlotError, check, draw
from tests.replay.test_report import RUNS


@pytest.mark.parametrize(("suffix", "starts"), [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_a_picture_is_drawn(tmp_path: Path, suffix: str, starts: bytes) -> None:
    path = tmp_path / f"all.{suffix}"
    draw(RUNS, path, "chat")
    data = path.read_bytes()
    assert data.startswith(starts)
    assert len(data) > 10_000


def test_another_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlotError, match=r"accepted are files ending in \.svg"):
        check(tmp_path / "all.txt")


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(PlotError, match="No such file"):
        draw(RUNS, tmp_path / "nowhere" / "all.svg", "chat")


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(PlotError, match=r"pip install 'replicarouter\[plot\]'"):
        check(tmp_path / "all.svg")
