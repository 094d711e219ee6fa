"""`replicarouter diagnose` as a process of its own, before routers and saved pages."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from replicarouter.cli.diagnose import KEY_VARIABLES
from tests.diagnosis.pages import fleet
from tests.fakes.client import HOST, chat
from tests.fakes.load import engines, finished, reached, users
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
            status, output, messages = await diagnose(*at(router), "--for", "1.5")
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
    assert "[engine_queueing: elsewhere]" in output
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
    assert messages.startswith(f"replicarouter: no router answers at {url}: ")


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


async def test_watching_goes_on_while_the_router_does_not_answer(start_router: StartRouter) -> None:
    router = await start_router(FakeReplica())
    async with started(*at(router), "--watch", "--json") as process, asyncio.timeout(DEADLINE):
        assert process.stdout is not None
        first = json.loads(await process.stdout.readline())
        await router.stop()
        while not (document := json.loads(await process.stdout.readline()))["notices"]:
            pass
        process.send_signal(signal.SIGINT)
        await process.communicate()
    assert first["ledger"]["replicas"][0]["state"] == "ready"
    assert any("did not answer" in notice for notice in document["notices"])


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
    assert "[engine_queueing: elsewhere]" in output


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
        ("--router", "nonsense"),
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
