"""`replicarouter replicas` against a running router."""

import asyncio
import io
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from replicarouter.cli import main
from replicarouter.cli.replicas import TOKEN_VARIABLE
from tests.fakes.client import HOST, chat
from tests.fakes.replica import OK, FakeReplica, held, reply, sized
from tests.fakes.running import RunningRouter, StartRouter, free_port


@dataclass(frozen=True, slots=True)
class Done:
    """How a run of the command ended."""

    status: object
    output: str
    messages: str


Run = Callable[..., Awaitable[Done]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command with these words, by default against this router."""
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)

    def work(words: list[str]) -> object:
        try:
            return main(["replicas", *words])
        except SystemExit as left:
            return left.code

    async def one(*words: str, router: RunningRouter | None = None, token: str = "") -> Done:
        given = [*words]
        if router is not None:
            given += ["--admin", f"http://{HOST}:{router.admin_port}"]
        if token:
            given += ["--token", token]
        capsys.readouterr()
        status = await asyncio.to_thread(work, given)
        output, messages = capsys.readouterr()
        return Done(status, output, messages)

    return one


async def test_a_table_shows_every_replica(run: Run, start_router: StartRouter) -> None:
    one = FakeReplica(name="one", weight=2.5, labels={"rack": "a"})
    router = await start_router(one, FakeReplica(models=["m2", "m3"]))
    done = await run("list", router=router)

    assert (done.status, done.messages) == (0, "")
    head, first, second = [line.split() for line in done.output.splitlines()]
    assert first[: len(head) - 1] == ["one", "ready", "0", "0", "0", "2.5", "file", "m1", "rack=a"]
    assert second[head.index("models")] == "m2,m3"


async def test_what_the_router_answers_can_be_had_as_json(run: Run, start_router: StartRouter) -> None:
    router = await start_router(FakeReplica())
    done = await run("list", "--json", router=router)
    assert json.loads(done.output)["replicas"][0]["state"] == "ready"


async def test_a_replica_is_added_with_what_is_said_of_it(run: Run, start_router: StartRouter) -> None:
    router = await start_router(FakeReplica())
    flags = ("--name", "new", "--weight", "2", "--max-outstanding", "3", "--engine", "vllm")
    more = ("--model", "m1", "--model", "m2", "--label", "rack=7", "--label", "note=a=b")
    done = await run("add", f"http://{HOST}:1", *flags, *more, router=router)

    assert (done.status, done.output.startswith("new added")) == (0, True)
    row = (await router.admin("/admin/replicas")).json()["replicas"][1]
    for name, value in {
        "name": "new",
        "origin": "admin",
        "weight": 2,
        "models": ["m1", "m2"],
        "labels": {"rack": "7", "note": "a=b"},
    }.items():
        assert row[name] == value


async def test_a_whole_entry_comes_from_standard_input(
    run: Run, start_router: StartRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a key needs not stand on a command line, where other users see it."""
    keyed = FakeReplica(reply(OK), models=["m9"])
    await keyed.listen()
    router = await start_router(FakeReplica())
    entry = {**keyed.settings, "api_key": "sk-upstream"}
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(entry)))
    assert (await run("add", "-", router=router)).status == 0
    await router.until_ready(2)
    assert (await router.ask(chat(model="m9"))).status == 200
    assert keyed.requests[0].head.get("authorization") == "Bearer sk-upstream"
    await router.leave()
    await keyed.stop()


async def test_a_drained_replica_gets_nothing_until_it_is_undrained(
    run: Run, start_router: StartRouter
) -> None:
    one, two = FakeReplica(), FakeReplica()
    router = await start_router(one, two, health={"slow_start": 0})
    done = await run("drain", one.name, router=router)
    assert (done.status, done.output) == (0, f"{one.name} is drained; nothing runs there\n")
    assert "told to drain" in (await run("list", router=router)).output
    for _ in range(4):
        await router.ask(chat(stream=False))
    assert (len(one.requests), len(two.requests)) == (0, 4)
    done = await run("undrain", one.name, router=router)
    assert (done.status, done.output) == (0, f"{one.name} is ready\n")
    assert "told to" not in (await run("list", router=router)).output
    for _ in range(4):
        await router.ask(chat(stream=False))
    assert len(one.requests) >= 1


@pytest.mark.parametrize("order", ["drain", "remove"])
async def test_waiting_ends_with_the_last_request(run: Run, start_router: StartRouter, order: str) -> None:
    gate = asyncio.Event()
    busy = FakeReplica(held(b"", gate, OK))
    router = await start_router(busy, FakeReplica(models=["m2"]))
    client = await router.begin(chat(stream=False))
    await router.stage(sent=1)
    done = await run(order, busy.name, router=router)
    assert (done.status, "1 request still runs there" in done.output) == (0, True)
    waiting = asyncio.ensure_future(run(order, busy.name, "--wait", router=router))
    await asyncio.wait((waiting,), timeout=0.3)
    assert not waiting.done()
    gate.set()
    assert (await client.answer()).status == 200
    done = await waiting
    assert (done.status, "is removed" in done.output or "is drained" in done.output) == (0, True)


async def test_waiting_ends_at_its_limit_and_the_order_stands(run: Run, start_router: StartRouter) -> None:
    gate = asyncio.Event()
    busy = FakeReplica(held(b"", gate, OK))
    router = await start_router(busy)
    client = await router.begin(chat(stream=False))
    await router.stage(sent=1)
    done = await run("drain", busy.name, "--wait", "--timeout", "0.1", router=router)
    assert (done.status, done.output) == (1, "")
    assert "1 request still runs" in done.messages
    assert (await router.ledger()).replica(busy)["state"] == "draining"
    gate.set()
    assert (await client.answer()).status == 200


async def test_a_removed_replica_is_not_listed_any_more(run: Run, start_router: StartRouter) -> None:
    one, two = FakeReplica(), FakeReplica()
    router = await start_router(one, two)
    assert (await run("remove", one.name, router=router)).status == 0
    listed = (await run("list", router=router)).output
    assert one.name not in listed
    assert two.name in listed


# Refusals


async def test_what_the_router_refuses_is_told_in_its_words(run: Run, start_router: StartRouter) -> None:
    fake = FakeReplica()
    router = await start_router(fake)
    for words, told in (
        (("add", fake.settings["url"]), "This name or URL"),
        (("add", "file:///etc/hosts"), "give an http:// or https:// URL"),
        (("add", f"http://{HOST}:{router.port}"), "the router itself"),
        (("drain", "nobody"), "'nobody'"),
        (("undrain", "no/bo dy?#%"), "'no/bo dy?#%'"),
        (("remove", "[::1]:9"), "'[::1]:9'"),
    ):
        done = await run(*words, router=router)
        assert (done.status, done.output) == (1, "")
        assert done.messages.startswith("replicarouter: ")
        assert told in done.messages


async def test_the_token_is_shown(
    run: Run, start_router: StartRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    router = await start_router(FakeReplica(), admin={"token": "secret"})
    refused = await run("list", router=router)
    assert (refused.status, f"give --token, or set {TOKEN_VARIABLE}" in refused.messages) == (1, True)
    assert (await run("list", router=router, token="secret")).status == 0
    monkeypatch.setenv(TOKEN_VARIABLE, "secret")
    assert (await run("list", router=router)).status == 0
    refused = await run("list", router=router, token="wrong")
    assert (refused.status, "the token is wrong" in refused.messages) == (1, True)


@pytest.mark.parametrize("keys", [None, ["sk-clients"]], ids=["open", "with keys"])
async def test_the_clients_port_is_told_from_the_admin_port(
    run: Run, start_router: StartRouter, keys: list[str] | None
) -> None:
    router = await start_router(FakeReplica(), api_keys=keys)
    for token in ("", "some"):
        done = await run("list", "--admin", f"http://{HOST}:{router.port}", token=token)
        assert (done.status, done.output) == (1, "")
        assert f"http://{HOST}:{router.port} is the clients' port; give --admin" in done.messages


async def test_another_path_of_the_admin_port_is_told_as_such(run: Run, start_router: StartRouter) -> None:
    router = await start_router(FakeReplica())
    done = await run("list", "--admin", f"http://{HOST}:{router.admin_port}/prefix")
    assert (done.status, "not part of the admin API" in done.messages) == (1, True)


async def test_a_token_that_can_be_none_is_told(run: Run, start_router: StartRouter) -> None:
    router = await start_router(FakeReplica())
    done = await run("list", router=router, token="a\nb")
    assert (done.status, "token" in done.messages) == (1, True)


async def test_where_no_router_answers_is_told(run: Run) -> None:
    done = await run("list", "--admin", f"http://{HOST}:{free_port()}")
    assert (done.status, done.output) == (1, "")
    assert "no router answers at" in done.messages


@pytest.mark.parametrize(
    "answer",
    [sized(b"hello"), sized(b"hello", status="404 X"), sized(b"{}", status="500 X"), b"garbage\r\n\r\n"],
)
async def test_somebody_else_on_that_port_is_told(run: Run, answer: bytes) -> None:
    async with FakeReplica(reply(answer, then="fin")) as other:
        done = await run("list", "--admin", other.settings["url"])
    assert (done.status, done.output) == (1, "")
    assert "admin port" in done.messages or "no router answers" in done.messages


async def test_the_token_follows_no_redirect(run: Run) -> None:
    async with FakeReplica() as thief:
        there = f"Location: {thief.settings['url']}\r\n"
        async with FakeReplica(reply(sized(b"", status="307 X", headers=there), then="fin")) as other:
            done = await run("list", "--admin", other.settings["url"], token="secret")
        assert done.status == 1
        assert thief.requests == []


async def test_proxies_of_the_environment_are_not_asked(
    run: Run, start_router: StartRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://{HOST}:{free_port()}")
    monkeypatch.setenv("HTTP_PROXY", f"http://{HOST}:{free_port()}")
    router = await start_router(FakeReplica())
    assert (await run("list", router=router)).status == 0


# Usage

USAGE: list[tuple[str, ...]] = [
    (),
    ("lst",),
    ("drain",),
    ("add",),
    ("list", "more"),
    ("list", "--wait"),
    ("drain", "a", "--timeout", "soon"),
    ("drain", "a", "--timeout", "-1"),
    ("drain", "a", "--timeout", "inf"),
    ("add", "http://a", "--weight", "heavy"),
    ("add", "http://a", "--label", "rack"),
    ("add", "-", "--name", "a"),
    ("list", "--admin", "127.0.0.1:8081"),
    ("list", "--admin", "ftp://127.0.0.1"),
    ("list", "--admin", "http://"),
    ("list", "--admin", "http://[::1"),
    ("list", "--admin", "http://a:99999"),
]


@pytest.mark.parametrize("words", USAGE, ids=" ".join)
async def test_bad_usage_is_status_2(run: Run, words: tuple[str, ...]) -> None:
    done = await run(*words)
    assert (done.status, done.output) == (2, "")
    assert done.messages.startswith("replicarouter replicas")
    assert done.messages.count("\n") == 1


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys; from replicarouter.cli import main\n"
        "try: main(['replicas', 'list', '--help'])\n"
        "except SystemExit: print(sorted({'pydantic', 'aiohttp', 'yaml', 'uvloop'} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


async def test_each_action_explains_itself(run: Run) -> None:
    for action in ("list", "add", "drain", "undrain", "remove"):
        done = await run(action, "--help")
        assert (done.status, f"usage: replicarouter replicas {action}" in done.output) == (0, True)
