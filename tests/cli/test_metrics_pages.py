"""Pages of metrics: asked for, saved, broken, and in any order."""

import asyncio
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from replicarouter.cli import CommandFailed
from replicarouter.cli.metrics_pages import NoAnswer, Page, Source, saved
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


@pytest.mark.parametrize("endless", ["/dev/zero", "a pipe"])
def test_what_has_no_end_is_not_read_for_ever(endless: str, tmp_path: Path) -> None:
    name = endless if endless.startswith("/") else str(tmp_path / "pipe")
    with ExitStack() as stack:
        if name != endless:
            os.mkfifo(name)
            source = stack.enter_context(subprocess.Popen(["sh", "-c", f"exec cat /dev/zero > {name}"]))
            stack.callback(source.kill)
        with pytest.raises(CommandFailed, match=f"{name} is no page of .*: it goes on after 64 MiB"):
            saved([name], None)


def test_a_page_comes_out_of_a_pipe_too(tmp_path: Path) -> None:
    """As of `--from <(curl …) <(sleep 5; curl …)`."""
    (tmp_path / "page").write_text(fleet(0).page())
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["sh", "-c", "exec cat page > pipe"], cwd=tmp_path):
        (snapshot,), _ = saved([str(tmp_path / "pipe")], None)
    assert snapshot.total("requests_outstanding") == 128


# Routers


def test_where_nobody_listens_no_router_answers() -> None:
    with pytest.raises(NoAnswer) as failed:
        Source(url := f"http://{HOST}:{free_port()}").read()
    assert failed.value.reason == "Connection refused"
    assert str(failed.value) == f"no router answers at {url}: Connection refused"


def test_who_does_not_answer_in_time_does_not_answer() -> None:
    with socket.create_server((HOST, 0)) as listener, pytest.raises(NoAnswer, match="timed out"):
        Source(f"http://{HOST}:{listener.getsockname()[1]}").read(0.1)


@contextmanager
def guarded(*keys: str, length: int | None = None) -> Iterator[tuple[str, list[str | None]]]:
    """A page for these keys only; its URL, and with what it was asked. It is said to have `length` bytes."""
    asked: list[str | None] = []
    page = fleet(0).page().encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(given := self.headers["Authorization"])
            refused = bool(keys) and given not in {f"Bearer {key}" for key in keys}
            body = b"" if refused else page
            self.send_response(401 if refused else 200)
            self.send_header("Content-Length", str(len(body) if length is None else length))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer((HOST, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://{HOST}:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


def test_the_key_that_was_taken_is_given_at_once_from_then_on() -> None:
    with guarded("right") as (url, asked):
        source = Source(url, ["wrong", "right"])
        for _ in range(3):
            source.read()
    assert asked == [None, "Bearer wrong", "Bearer right", "Bearer right", "Bearer right"]


def test_a_key_that_is_known_to_be_wanted_is_given_at_once() -> None:
    with guarded("right") as (url, asked):
        for _ in range(2):
            Source(url, ["right"], wanted=True).read()
        with pytest.raises(CommandFailed, match="none of those that were given is right"):
            Source(url, ["wrong"], wanted=True).read()
    assert asked == ["Bearer right", "Bearer right", "Bearer wrong"]


def test_no_key_is_given_where_none_is_wanted() -> None:
    with guarded() as (url, asked):
        source = Source(url, ["secret"])
        for _ in range(2):
            source.read()
    assert asked == [None, None]


def test_a_key_that_is_no_longer_taken_gives_way_to_another() -> None:
    with guarded("new") as (url, asked):
        source = Source(url, ["old", "new"], wanted=True)
        source.read()
        source.read()
    assert asked == ["Bearer old", "Bearer new", "Bearer new"]


def test_an_answer_that_is_cut_is_none() -> None:
    with guarded(length=10_000_000) as (url, _), pytest.raises(NoAnswer, match="IncompleteRead"):
        Source(url).read()


async def test_either_port_of_a_router_gives_its_page(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica())
    for port in (router.port, router.admin_port):
        for path in ("", "/", "/metrics"):
            page = await asyncio.to_thread(Source(f"http://{HOST}:{port}{path}").read)
            assert page.snapshot.of_router
