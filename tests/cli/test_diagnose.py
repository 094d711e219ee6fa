"""`replicarouter diagnose` as a process of its own, before routers and saved pages."""

import asyncio
import json
import os
import re
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from replicarouter.cli import main
from replicarouter.cli.diagnose import KEY_VARIABLES, LOOK_TIMEOUT, _Looks
from replicarouter.cli.metrics_pages import Source
from replicarouter.diagnosis.verdict import Expectations
from tests.diagnosis.pages import fleet, window
from tests.fakes.client import HOST, chat
from tests.fakes.load import STARVED, engines, finished, reached, users
from tests.fakes.replica import OK, FakeReplica, held
from tests.fakes.running import RunningRouter, StartRouter, free_port

COMMAND = (sys.executable, "-m", "replicarouter", "diagnose")
KEY = "key-" + "k" * 40
DEADLINE = 30.0
DIAGNOSED = (0, 3, 4)
"""Exit statuses of whoever got an answer."""


@asynccontextmanager
async def started(*flags: str, **environment: str) -> AsyncIterator[Process]:
    clean = {name: value for name, value in os.environ.items() if name not in KEY_VARIABLES}
    process = await asyncio.create_subprocess_exec(
        *COMMAND, *flags, stdout=PIPE, stderr=PIPE, env={**clean, **environment}
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def diagnose(*flags: str, **environment: str) -> tuple[int, str, str]:
    """Exit status, output and messages."""
    async with started(*flags, **environment) as process, asyncio.timeout(DEADLINE):
        output, messages = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode(), messages.decode()


async def diagnose_fed(*flags: str, again: int = 2) -> tuple[int, str, str]:
    """The same of a router in this process, asked again when the machine starves it."""
    said = await diagnose(*flags)
    while again and any(f"[{code}: " in said[1] for code in STARVED):
        again -= 1
        said = await diagnose(*flags)
    return said


def at(router: RunningRouter) -> tuple[str, str]:
    return "--router", f"http://{HOST}:{router.port}"


Save = Callable[[str, str], str]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    def one(name: str, text: str) -> str:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return str(tmp_path / name)

    return one


def defect(seconds: float) -> str:
    router = fleet(seconds)
    router.connector_limit, router.connector_waiting, router.held = 100, 156, 3.2
    for one in router.replicas:
        one.connecting, one.streaming = 19.5, 12.5
    return router.page()


def queueing(seconds: float) -> str:
    router = fleet(seconds)
    for one in router.replicas:
        one.streaming, one.waiting = 32, 16
    return router.page()


# Routers


async def test_a_busy_fleet_is_healthy(start_router: StartRouter) -> None:
    async with engines(2) as fleet_:
        router = await start_router(*(engine.url for engine in fleet_), ready=2)
        async with users(router.port, 6, answer_tokens=(10, 30)) as crowd:
            await finished(crowd, 6)
            status, output, messages = await diagnose_fed(*at(router), "--for", "1.5")
    assert (status, messages) == (0, ""), output
    assert f"at http://{HOST}:{router.port}, 4 looks over " in output
    assert "Nothing limits but the engines' own speed:" in output
    assert [line for line in output.splitlines() if len(line) > 80] == []


async def test_a_connector_limit_is_the_routers_and_its_first_word(start_router: StartRouter) -> None:
    """24 users, 8 connections: 16 wait in the router."""
    async with engines(2) as fleet_:
        urls = (engine.url for engine in fleet_)
        router = await start_router(*urls, ready=2, connector={"limit": 8})
        async with users(router.port, 24):
            await reached(router, running=7, connecting=16)
            status, output, _ = await diagnose(*at(router), "--for", "0.6", "--json")
    document = json.loads(output)
    assert (status, document["exit_status"]) == (3, 3)
    assert document["verdicts"][0]["code"] == "connector_limit"
    assert document["verdicts"][0]["setting"] == "connector.limit"
    assert document["ledger"]["connecting"] == 16


async def test_engines_with_queues_are_elsewhere(start_router: StartRouter) -> None:
    async with engines(2, max_num_seqs=4) as fleet_:
        router = await start_router(*(engine.url for engine in fleet_), ready=2)
        async with users(router.port, 24):
            await reached(router, running=8, waiting=16)
            status, output, _ = await diagnose(*at(router), "--for", "0.6")
    assert status == 4
    assert "[engine_queueing: too few engines]" in output
    assert "change: max_num_seqs" in output


async def test_a_router_that_wants_a_key_gets_the_one_that_fits(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica(), api_keys=[KEY])
    short = (*at(router), "--for", "0.1")
    status, _, messages = await diagnose(*short)
    assert (status, messages.count("\n")) == (1, 1)
    assert "wants a key for its metrics: give it with --key" in messages
    assert (await diagnose(*short, "--key", "wrong"))[0] == 1
    assert (await diagnose(*short, "--key", KEY))[0] in DIAGNOSED
    assert (await diagnose(*short, OPENAI_API_KEY="other", REPLICAROUTER_ADMIN__TOKEN=KEY))[0] in DIAGNOSED


async def test_a_key_is_not_sent_unless_it_is_asked_for() -> None:
    """An engine stands where a router is meant to be, and sees what it is asked with."""
    async with FakeReplica() as replica:
        url = f"http://{HOST}:{replica.port}"
        status, _, messages = await diagnose("--router", url, OPENAI_API_KEY=KEY)
        assert (status, "is no page of a router's metrics" in messages) == (1, True)
        assert [asked.head.get("authorization") for asked in replica.probed] == [None]


async def test_without_a_router_the_status_is_1_in_clear_words() -> None:
    url = f"http://{HOST}:{free_port()}"
    status, output, messages = await diagnose("--router", url)
    assert (status, output) == (1, "")
    assert messages == f"replicarouter: no router answers at {url}: Connection refused\n"


def test_an_address_is_asked_for_only_where_none_was_given(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody listens where a router is looked for."""
    monkeypatch.setattr("replicarouter.cli.diagnose.ROUTER", url := f"http://{HOST}:{free_port()}")
    assert main(["diagnose"]) == 1
    assert capsys.readouterr().err == (
        f"replicarouter: no router answers at {url}: Connection refused; give its address with --router URL\n"
    )


async def test_an_idle_router_is_not_said_to_be_limited_by_its_engines(start_router: StartRouter) -> None:
    """Its address given as a word."""
    router = await start_router(FakeReplica())
    status, output, messages = await diagnose(at(router)[1], "--for", "0.1")
    assert (status, messages) == (0, ""), output
    assert "Nothing limits" not in output
    assert "judges a client that does not come." in " ".join(output.split())


# Routers that stop answering


@asynccontextmanager
async def answering(looks: int, *, frozen: bool = True) -> AsyncIterator[str]:
    """A door where a router's page is told so often and then no more: nothing comes, or nobody is there."""
    left = looks
    page = fleet(0).page().encode()
    held_open: list[asyncio.StreamWriter] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal left
        held_open.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        left -= 1
        if left >= 0:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(page), page))
        if left <= 0 and not frozen:
            server.close()

    server = await asyncio.start_server(answer, HOST, 0)
    try:
        yield f"http://{HOST}:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in held_open:
            writer.transport.abort()


async def test_a_router_that_freezes_is_said_to_be_silent_in_time() -> None:
    begin = time.monotonic()
    async with answering(2) as url:
        status, output, messages = await diagnose(url, "--for", "1")
    assert time.monotonic() - begin < 5 * (1 + LOOK_TIMEOUT)
    assert (status, messages) == (3, ""), output
    assert "1. The router does not answer  [router_silent: router]" in output
    assert "   - no answer at 1 of 3 looks (timed out)" in output
    assert "s ago (engine counts" in output
    assert "now" not in output.splitlines()[2]


async def test_a_router_that_dies_is_said_to_be_silent_first_of_all() -> None:
    async with answering(2, frozen=False) as url:
        status, output, _ = await diagnose(url, "--for", "2", "--json", "--expect-concurrency", "900")
    document = json.loads(output)
    assert (status, [one["code"] for one in document["verdicts"]][:2]) == (
        3,
        ["router_silent", "client_limited"],
    )
    assert document["verdicts"][0]["evidence"][0] == "no answer at 3 of 5 looks (Connection refused)"
    assert document["summary"].startswith("The router does not answer: no answer at 3 of 5 looks")
    assert document["ledger"]["accepted"] == 128


def test_a_look_without_an_answer_among_many_is_only_told() -> None:
    looks = _Looks(Source(f"http://{HOST}:{free_port()}"), 2.0)
    looks.kept.extend(window().snapshots)
    looks.missed.append(1.0)
    report = looks.report(Expectations())
    assert (report.status, report.notices) == (0, ["the router did not answer at 1 of 7 looks"])


# Watching


async def test_watching_gives_a_line_a_look_until_it_is_stopped(start_router: StartRouter) -> None:
    gate = asyncio.Event()
    router = await start_router(FakeReplica(held(b"", gate, OK)))
    client = await router.begin(chat())
    await reached(router, sent=1)
    async with started(*at(router), "--watch") as process, asyncio.timeout(DEADLINE):
        assert process.stdout is not None
        lines = [(await process.stdout.readline()).decode() for _ in range(2)]
        process.send_signal(signal.SIGINT)
        _, messages = await process.communicate()
    gate.set()
    await client.answer()
    assert all("receiving 0 queued 0 connecting 0 sent 1 streaming 0 | " in line for line in lines)
    assert (process.returncode in DIAGNOSED, messages) == (True, b"")


@pytest.mark.parametrize("frozen", [True, False])
async def test_watching_does_not_repeat_what_a_router_said_that_does_not_answer(frozen: bool) -> None:
    async with answering(1, frozen=frozen) as url, started(url, "--watch") as process:
        async with asyncio.timeout(DEADLINE):
            assert process.stdout is not None
            first, *others = [(await process.stdout.readline()).decode() for _ in range(3)]
            process.send_signal(signal.SIGINT)
            await process.communicate()
    assert "streaming 128 | running 128 waiting 0 | nothing limits" in first
    for line in others:
        assert re.fullmatch(r"..:..:.. no answer for [\d.]+ m?s \| router_silent\n", line)
    assert process.returncode == 3


async def test_watching_an_idle_router_says_that_it_is_idle(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica())
    async with started(*at(router), "--watch") as process, asyncio.timeout(DEADLINE):
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode()
        process.send_signal(signal.SIGINT)
        await process.communicate()
    assert " | no request in flight" in line or " | router_cpu" in line, line


async def test_watching_goes_on_while_the_router_does_not_answer(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica())
    async with started(*at(router), "--watch", "--json") as process, asyncio.timeout(DEADLINE):
        assert process.stdout is not None
        first = json.loads(await process.stdout.readline())
        await router.stop()
        while (document := json.loads(await process.stdout.readline()))["ledger"]:
            pass
        process.send_signal(signal.SIGINT)
        await process.communicate()
    assert first["ledger"]["replicas"][0]["state"] == "ready"
    assert [notice.startswith("no answer for ") for notice in document["notices"]] == [True]
    assert [verdict["code"] for verdict in document["verdicts"]] == ["router_silent"]


# Saved pages


async def test_two_saved_pages_are_judged(save: Save) -> None:
    files = (save("before.txt", defect(0)), save("after.txt", defect(5)))
    status, output, messages = await diagnose("--from", *files, "--for", "5", "--expect-concurrency", "256")
    assert (status, messages) == (3, "")
    assert "in flight 256 = receiving 0 + queued 0 + connecting 156 + sent 0 + streaming 100" in output
    assert "1. The router's connector limit holds requests back  [connector_limit: router]" in output
    assert "change: connector.limit: now 100; set it to at least 512" in output


async def test_a_single_saved_page_is_judged_by_its_gauges(save: Save) -> None:
    status, output, _ = await diagnose("--from", save("one.txt", queueing(0)))
    assert status == 4
    assert "note: one page tells no rates" in output
    assert "[engine_queueing: too few engines]" in output


async def test_saved_pages_in_the_wrong_order_and_a_restart_are_said(save: Save) -> None:
    early, late = save("early.txt", fleet(0).page()), save("late.txt", fleet(5).page())
    status, output, _ = await diagnose("--from", late, early, "--json", "--for", "5")
    assert (status, json.loads(output)["notices"]) == (
        0,
        ["the pages were given in the wrong order; the oldest is taken first"],
    )
    again = fleet(2)
    again.started, again.received = 4000, 140
    status, output, _ = await diagnose(
        "--from", early, save("again.txt", again.page()), "--json", "--for", "9"
    )
    assert (status, [one["code"] for one in json.loads(output)["verdicts"]]) == (0, ["router_restarted"])


def dated(page: str, at: float) -> str:
    return f"{page}replicarouter_time_seconds {1_700_000_000 + at}\n"


async def judged(*flags: str) -> tuple[float, list[str]]:
    """The length of the window, and what is said of it."""
    status, output, messages = await diagnose("--from", *flags, "--json")
    assert (status, messages) == (3, "")
    document = json.loads(output)
    return document["seconds"], document["notices"]


UNKNOWN = ["the time between the pages is not known, so rates are not judged (--for SECONDS says it)"]


async def test_saved_pages_tell_the_time_between_them(save: Save) -> None:
    """Whatever became of the times of their files; `--for` is believed more."""
    files = [save(f"{at}.txt", dated(defect(at), at)) for at in (0, 5, 10)]
    for number, file in enumerate(files):
        os.utime(file, (1000 - number, 1000 - number))
    assert await judged(*files) == (10.0, [])
    assert await judged(*files, "--for", "7") == (7.0, [])


async def test_pages_that_tell_no_time_are_as_old_as_their_files_unless_those_were_copied(
    save: Save,
) -> None:
    before, after = save("before.txt", dated(defect(0), 0)), save("after.txt", defect(5))
    for apart, known in ((60, 60.0), (0.51, 0.51), (0.49, 0.0), (-60, 0.0)):
        os.utime(before, (1000, 1000))
        os.utime(after, (1000 + apart, 1000 + apart))
        seconds, notices = await judged(before, after)
        assert (round(seconds, 3), notices) == (known, [] if known else UNKNOWN)


async def test_pages_without_a_process_are_put_into_the_order_of_their_times(save: Save) -> None:
    def without(page: str) -> str:
        return "".join(line for line in page.splitlines(True) if "_process_" not in line)

    late, early = (save(f"{at}.txt", dated(without(defect(at)), at)) for at in (5, 0))
    assert await judged(late, early) == (
        5.0,
        ["the pages were given in the wrong order; the oldest is taken first"],
    )


async def test_the_json_document_has_all_there_is_to_know(save: Save) -> None:
    files = (save("before.txt", queueing(0)), save("after.txt", queueing(5)))
    status, output, _ = await diagnose("--from", *files, "--for", "5", "--json")
    document = json.loads(output)
    assert status == document["exit_status"] == 4
    assert set(document) == {
        *("router", "version", "seconds", "looks", "notices"),
        *("exit_status", "ledger", "verdicts", "summary"),
    }
    assert (document["version"], document["seconds"], document["looks"]) == ("1.2.3", 5.0, 2)
    assert set(document["verdicts"][0]) == {
        *("code", "side", "title", "evidence", "cure", "setting", "replica")
    }
    ledger = document["ledger"]
    stages = ("receiving", "queued", "connecting", "sent", "streaming")
    assert ledger["accepted"] == sum(ledger[stage] for stage in stages)
    assert len(ledger["replicas"]) == 8
    assert document["summary"].startswith("Requests queue in the engines: waiting in the engines: 128")


@pytest.mark.parametrize("text", ["", "vllm:num_requests_running 1\n", "<html></html>\n"])
async def test_what_is_no_page_of_a_router_is_refused(save: Save, text: str) -> None:
    status, output, messages = await diagnose("--from", save("page", text))
    assert (status, output) == (1, "")
    assert "is no page of a router's metrics" in messages


@pytest.mark.parametrize(
    "flags",
    [
        ("--from", "a", "--watch"),
        ("--from", "a", "--router", "http://127.0.0.1:1"),
        ("--from",),
        ("--from", "a", "--for", "1", "http://127.0.0.1:1"),
        ("--router", "nonsense"),
        ("nonsense",),
        ("http://127.0.0.1:1", "--router", "http://127.0.0.1:1"),
        ("--for", "0"),
        ("--for", "soon"),
        ("--expect-concurrency", "0"),
        ("--expect-concurrency", "many"),
        ("--unknown",),
    ],
)
async def test_bad_usage_is_said(flags: tuple[str, ...]) -> None:
    status, output, messages = await diagnose(*flags)
    assert (status, output, messages.count("\n")) == (2, "", 1)


@pytest.mark.parametrize("flags", [("--router",), ()])
async def test_a_password_in_a_url_is_refused_without_being_told(flags: tuple[str, ...]) -> None:
    for url in ("http://user:secret@127.0.0.1:8080", "http://user:secret@[", "user:secret@host"):
        status, output, messages = await diagnose(*flags, url)
        assert (status, output, messages.count("\n")) == (2, "", 1)
        assert "credentials do not belong into a URL; use --key" in messages
        assert "secret" not in messages
