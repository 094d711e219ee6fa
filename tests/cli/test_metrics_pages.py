"""Pages of metrics: asked for, saved, broken, and in any order."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from replicarouter.cli import CommandFailed
from replicarouter.cli.metrics_pages import Page, Source, saved
from tests.diagnosis.pages import fleet
from tests.fakes.client import HOST
from tests.fakes.replica import FakeReplica
from tests.fakes.running import StartRouter, free_port

Save = Callable[..., str]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Save a page, written so many seconds after the epoch."""

    def one(name: str, text: str, at: float = 1000.0) -> str:
        file = tmp_path / name
        file.write_text(text, encoding="utf-8")
        os.utime(file, (at, at))
        return str(file)

    return one


def test_a_page_is_read_without_an_end_mark_and_with_one() -> None:
    page = fleet(0).page()
    for text in (page, page + "# EOF\n"):
        read = Page.of(text.encode(), 3.0, "x")
        assert (read.snapshot.of_router, read.snapshot.whole, read.notices) == (True, True, ())


def test_a_page_that_ends_within_a_line_is_read_up_to_there() -> None:
    page = fleet(0).page()
    cut = page[: page.index("replicarouter_connector_limit") + 10]
    read = Page.of(cut.encode(), 3.0, "x")
    assert read.snapshot.total("requests_outstanding") == 128
    assert [notice.startswith("the page of x ") for notice in read.notices] == [True, True]


def test_lines_that_cannot_be_read_are_left_out_and_counted() -> None:
    page = fleet(0).page() + 'replicarouter_held_seconds{a="b} 4\nnonsense nonsense\n'
    read = Page.of(page.encode(), 3.0, "x")
    assert read.snapshot.total("requests_outstanding") == 128
    assert read.notices == ("2 lines of the page of x cannot be read and are left out",)


@pytest.mark.parametrize(
    "content",
    [b"", b"\n", b"vllm:num_requests_running 3.0\n", b"<html><body>Hello</body></html>\n", bytes(range(256))],
)
def test_what_is_no_page_of_a_router_is_said_to_be_none(content: bytes) -> None:
    with pytest.raises(CommandFailed, match="x is no page of a router's metrics"):
        Page.of(content, 0.0, "x")


def test_saved_pages_have_the_times_of_their_files(save: Save) -> None:
    files = [save("a", fleet(0).page(), 1000), save("b", fleet(5).page(), 1007)]
    snapshots, notices = saved(files, None)
    assert ([snapshot.at for snapshot in snapshots], notices) == ([1000, 1007], [])


def test_the_time_between_saved_pages_can_be_said(save: Save) -> None:
    files = [save(name, fleet(at).page()) for name, at in (("a", 0), ("b", 5), ("c", 10))]
    assert [snapshot.at for snapshot in saved(files, 10)[0]] == [0, 5, 10]


def test_pages_in_the_wrong_order_are_turned_round(save: Save) -> None:
    files = [save("late", fleet(5).page(), 1005), save("early", fleet(0).page(), 1000)]
    snapshots, notices = saved(files, None)
    assert [snapshot.at for snapshot in snapshots] == [1000, 1005]
    assert notices == ["the pages were given in the wrong order; the oldest is taken first"]


def test_a_router_that_began_anew_is_the_later_one(save: Save) -> None:
    again = fleet(0)
    again.started, again.cpu, again.received = 5000, 0.1, 130
    files = [save("before", fleet(5).page(), 1000), save("after", again.page(), 1009)]
    snapshots, notices = saved(files, None)
    assert ([snapshot.at for snapshot in snapshots], notices) == ([1000, 1009], [])


def test_times_of_files_that_contradict_their_pages_are_not_believed(save: Save) -> None:
    files = [save("early", fleet(0).page(), 2000), save("late", fleet(5).page(), 1000)]
    assert [snapshot.at for snapshot in saved(files, None)[0]] == [0, 0]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="nowhere cannot be read: No such file"):
        saved([str(tmp_path / "nowhere")], None)


def test_where_nobody_listens_no_router_answers() -> None:
    with pytest.raises(CommandFailed, match="no router answers at http://"):
        Source(f"http://{HOST}:{free_port()}").read()


async def test_either_port_of_a_router_gives_its_page(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica())
    for port in (router.port, router.admin_port):
        for path in ("", "/", "/metrics"):
            page = await asyncio.to_thread(Source(f"http://{HOST}:{port}{path}").read)
            assert page.snapshot.of_router
