"""Keys of callers, of engines and of operators show up nowhere, whatever goes wrong."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.client import HOST, Answer, Client, chat, request
from tests.fakes.replica import SSE_HEAD, Connection, FakeReplica, Received, event, reply, silence, sized
from tests.fakes.running import Doors, free_port
from tests.fakes.served import STARTS
from tests.fakes.wire import eventually

CLIENT, ENGINE, OPERATOR, WRONG = "sk-CANARY-A", "sk-CANARY-B", "sk-CANARY-T", "sk-CANARY-W"
CANARIES = (CLIENT, ENGINE, OPERATOR, WRONG)
MINE = {"Authorization": f"Bearer {CLIENT}"}


class Locked(Doors):
    """`serve` with keys on every side, logging all it can; its clients show the key."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        super().__init__(free_port(), free_port(), OPERATOR)
        self.folder = folder
        config = folder / "router.yaml"
        document = {
            "port": self.port,
            "admin": {"port": self.admin_port, "token": OPERATOR},
            "api_keys": {"alice": CLIENT},
            "health": {"interval": 0.2, "timeout": 0.5},
            "log": {"level": "debug"},
            **settings,
        }
        config.write_text(json.dumps(document))
        self.config = config
        with (folder / "output").open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "replicarouter", "serve", "--config", str(config)],
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def output(self) -> str:
        return (self.folder / "output").read_text(errors="replace")

    async def up(self, count: int) -> None:
        async def ready() -> bool:
            assert self.process.poll() is None, self.output
            try:
                rows = (await self.admin("/admin/replicas")).json()["replicas"]
            except ConnectionRefusedError:
                return False
            # The operator's port is opened before that of clients.
            return "clients" in self.output and [row["state"] for row in rows].count("ready") >= count

        await eventually(ready, "the router is up", deadline=STARTS)


def told(answers: list[Answer], *secrets: str) -> list[str]:
    """Which secrets stand in what the router has answered."""
    texts = [answer.head.raw + answer.body.raw for answer in answers]
    return [secret for secret in secrets if any(secret.encode() in text for text in texts)]


async def echo(received: Received, connection: Connection) -> None:
    """An engine that writes what it got into its error, as careless ones do."""
    head = received.head.raw.decode("latin-1")
    await connection.send(sized(json.dumps({"error": head}).encode(), status="500 Oops"))


async def test_no_secret_is_told_whatever_goes_wrong(tmp_path: Path) -> None:
    scripts = {
        "broken": reply(SSE_HEAD + event("1"), then="rst"),
        "malformed": reply(b"nonsense\r\n\r\n"),
        "cut": reply(b"HTTP/1.1 200 OK\r\n", then="rst"),
        "refused": reply(sized(b"{}", status="401 Unauthorized")),
        "silent": silence,
    }
    replicas = {name: FakeReplica(script, api_key=ENGINE, models=[name]) for name, script in scripts.items()}
    gone = FakeReplica(api_key=ENGINE, models=["gone"])
    for replica in (*replicas.values(), gone):
        await replica.listen()
    every = [*replicas.values(), gone]
    settings = {
        "replicas": [replica.settings for replica in every],
        "timeouts": {"response_head": 0.5, "connect": 0.5},
    }
    router = Locked(tmp_path, settings)
    try:
        await router.up(len(every))
        gone.reset_all()
        await gone.refuse()
        answers = [await router.ask(chat(model=name, headers=MINE)) for name in (*scripts, "gone", "nope")]
        answers += [
            await router.ask(chat(headers={"Authorization": f"Bearer {WRONG}"})),
            await router.ask(chat(headers={"Authorization": WRONG, "x-api-key": CLIENT})),
            await router.ask(chat(headers={"Authorization": f"Bearer {OPERATOR}"})),
            await router.get(f"/v1/models?key={CLIENT}"),
            await router.ask(request("POST", "/v1/completions", b"{", MINE)),
            await router.ask(f"GET / HTTP/1.1\r\nAuthorization {CLIENT}\r\n\r\n".encode()),
            await router.ask(f"GET / HTTP/1.1\r\n{CLIENT}: {'x' * 70000}\r\n\r\n".encode()),
            await router.get("/metrics", MINE),
            await router.get("/v1/models", MINE),
            await router.get("/ready"),
            await router.admin("/admin/replicas"),
            await router.admin("/admin/ledger"),
            await router.admin("/admin/requests"),
            await router.admin("/metrics"),
            await router.admin("/"),
            await router.admin("/admin/replicas", headers={"Authorization": f"Bearer {WRONG}"}),
        ]
        assert {answer.status for answer in answers} >= {200, 400, 401, 404, 431, 502, 504}
        assert told(answers, *CANARIES) == []
        addresses = [f"{HOST}:{replica.port}" for replica in every]
        to_clients = [answer for answer in answers[: len(scripts) + 9] if answer.status != 200]
        assert told(to_clients, *addresses) == []
        router.process.terminate()
        await eventually(lambda: router.process.poll() is not None, "it ends", deadline=STARTS)
        assert [secret for secret in CANARIES if secret in router.output] == []
        assert "request" in router.output
        assert "alice" not in "".join(answer.body.raw.decode("latin-1") for answer in answers)
    finally:
        await router.leave()
        router.process.kill()
        router.process.wait()
        for replica in every:
            await replica.stop()


async def test_an_engine_can_tell_its_own_key_alone(tmp_path: Path) -> None:
    """What an engine answers passes unchanged; what it never gets it cannot tell."""
    replica = FakeReplica(echo)
    await replica.listen()
    router = Locked(tmp_path, {"replicas": [replica.settings]})
    try:
        await router.up(1)
        answer = await router.ask(chat(headers={**MINE, "X-Mine": "1"}))
        assert answer.status == 500
        assert b"X-Mine" in answer.body.raw
        assert told([answer], *CANARIES) == []
        assert CLIENT not in router.output
    finally:
        await router.leave()
        router.process.kill()
        router.process.wait()
        await replica.stop()


@pytest.mark.parametrize(
    "url",
    ["http://u:sk-CANARY-C@127.0.0.1:1/", "http://127.0.0.1:1/?key=sk-CANARY-D", "sk-CANARY-C@127.0.0.1"],
)
async def test_credentials_in_a_url_are_refused_without_being_told(tmp_path: Path, url: str) -> None:
    router = Locked(
        tmp_path, {"replicas": [url, {"url": "http://127.0.0.1:1", "api_key": "a b sk-CANARY-B"}]}
    )
    await eventually(lambda: router.process.poll() is not None, "it ends", deadline=STARTS)
    assert router.process.wait() == 2
    assert "replicas[0]" in router.output
    assert "CANARY" not in router.output


@pytest.mark.parametrize("action", [["show"], ["show", "--json"]])
async def test_settings_are_shown_without_secrets(tmp_path: Path, action: list[str]) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"bob {WRONG}\n")
    config = tmp_path / "router.yaml"
    document = {
        "replicas": [{"url": "http://127.0.0.1:1", "api_key": ENGINE}],
        "api_keys": {"alice": CLIENT},
        "api_keys_file": str(keys),
        "admin": {"token": OPERATOR},
    }
    config.write_text(json.dumps(document))
    shown = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "replicarouter", "config", *action, "--config", str(config)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert [secret for secret in CANARIES if secret in shown.stdout + shown.stderr] == []
    assert "***" in shown.stdout
    assert "alice" in shown.stdout


async def test_a_key_that_is_sent_in_plain_to_a_tls_port_is_not_logged(tmp_path: Path) -> None:
    from tests.fakes.certificates import Authority, trusting  # noqa: PLC0415

    pair = Authority(tmp_path).issue()
    router = Locked(tmp_path, {"replicas": ["http://127.0.0.1:1"], "tls": pair.settings})
    router.tls = trusting(pair.cert)
    try:
        await router.up(0)
        plain = await Client.connect(router.port)
        await plain.send(chat(headers=MINE))
        await plain.gone()
        await plain.closed()
        assert (await router.get("/health")).status == 200
        assert CLIENT not in router.output
    finally:
        await router.leave()
        router.process.kill()
        router.process.wait()
