"""Other settings while the router serves: all of the good ones, nothing of the bad ones."""

import asyncio
import json
import signal
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest_asyncio

from tests.fakes.certificates import Authority
from tests.fakes.client import HOST, chat, request
from tests.fakes.message import LAST_CHUNK
from tests.fakes.replica import OK, SSE_HEAD, FakeReplica, event, held
from tests.fakes.served import Serve, Served
from tests.fakes.wire import eventually

QUICK = {"health": {"interval": 0.1, "slow_start": 0}, "scrape": {"interval": 0.1}}


class Scene:
    """The command with its settings file, and the replicas it may list."""

    def __init__(self, serve: Serve, folder: Path, replicas: list[FakeReplica]) -> None:
        self.file = folder / "router.yaml"
        self.replicas = replicas
        self.router: Served
        self.serve = serve

    async def start(self, *flags: str, **settings: Any) -> Served:
        """Start it with a file that lists the first two replicas."""
        self.file.write_text(self.text(2, **settings))
        self.router = await self.serve(flags=("--config", str(self.file), *flags))
        await self.router.until_ready(2)
        return self.router

    def text(self, count: int, **settings: Any) -> str:
        """A file that lists the first replicas, one on a line."""
        lines = [f"  - {json.dumps(one.settings)}" for one in self.replicas[:count]]
        rest = {**QUICK, **settings}
        return "\n".join(["replicas:", *lines, *(f"{key}: {json.dumps(rest[key])}" for key in rest), ""])

    async def reload(self, count: int = 2, **settings: Any) -> None:
        """Write the file and ask for it to be read; returns when it was."""
        self.file.write_text(self.text(count, **settings))
        await self.reread()

    async def reread(self) -> None:
        told = self.told()
        self.router.process.send_signal(signal.SIGHUP)
        await eventually(lambda: self.told() > told, "the settings are read")

    def told(self, event: str = "reloaded") -> int:
        """How often the log said how reading the settings again ended."""
        return self.router.output.count(f'"event":"settings {event}"')

    async def listed(self) -> list[str]:
        rows = (await self.router.admin("/admin/replicas")).json()["replicas"]
        return [row["name"] for row in rows]

    async def until(self, count: int, *, success: bool) -> None:
        """Wait until so many replicas are listed, and the metric says how the last reading went."""

        async def reached() -> bool:
            metric = (await self.router.metrics()).value("config_reload_success")
            return len(await self.listed()) == count and metric == success

        await eventually(reached, f"{count} replicas, reload success {success}", deadline=10)


@pytest_asyncio.fixture
async def scene(serve: Serve, tmp_path: Path) -> AsyncIterator[Scene]:
    replicas = [FakeReplica() for _ in range(3)]
    for replica in replicas:
        await replica.listen()
    yield Scene(serve, tmp_path, replicas)
    for replica in replicas:
        await replica.stop()


async def test_a_watched_file_goes_through_everything_an_editor_can_do(scene: Scene) -> None:
    """H65"""
    gate = asyncio.Event()
    for replica in scene.replicas[:2]:
        replica.script = held(SSE_HEAD + event("1"), gate, event("2") + LAST_CHUNK)
    router = await scene.start("--watch")
    stream = await router.begin(chat())
    await stream.wire.expect(event("1"))
    good = scene.file.read_text()

    broken = good.replace('", "', '" "').replace("- {", "- {{", 1)
    scene.file.write_text(broken)
    await scene.until(2, success=False)
    await eventually(lambda: scene.told("not reloaded") == 1, "the broken file is told")
    scene.file.write_text(good)
    await scene.until(2, success=True)

    scene.file.write_text(scene.text(3))
    await scene.until(3, success=True)

    scene.file.write_text("replicas: []\n")
    await scene.until(3, success=False)
    scene.file.write_text(scene.text(3, policy="best"))
    await eventually(lambda: scene.told("not reloaded") == 3, "the unknown policy is told")
    assert len(await scene.listed()) == 3

    other = scene.file.with_name("other")
    other.write_text(scene.text(2))
    other.rename(scene.file)
    await scene.until(2, success=True)

    first, second = scene.file.with_name("first"), scene.file.with_name("second")
    first.write_text(scene.text(3))
    second.write_text(scene.text(2))
    for target, count in ((first, 3), (second, 2)):
        link = scene.file.with_name("link")
        link.symlink_to(target)
        link.rename(scene.file)
        await scene.until(count, success=True)

    assert scene.told("not reloaded") == 3
    with scene.file.open("w") as slow:
        for line in scene.text(3).splitlines(keepends=True):
            slow.write(line)
            slow.flush()
            await asyncio.sleep(0.1)  # the writer is slow
    await scene.until(3, success=True)

    gate.set()
    answer = await stream.answer()
    assert (answer.ended, answer.body.raw) == ("clean", event("1") + event("2") + LAST_CHUNK)
    assert "Traceback" not in router.output


async def test_a_signal_makes_it_read_again_whatever_starts_it(scene: Scene) -> None:
    await scene.start()
    await scene.reload(3)
    await scene.until(3, success=True)
    scene.file.write_text("replicas: [")
    for _ in range(3):
        scene.router.process.send_signal(signal.SIGHUP)
        await scene.until(3, success=False)
    assert scene.told("not reloaded") == 1
    await scene.reload(2)
    await scene.until(2, success=True)


async def test_flags_stay_stronger_than_the_file(scene: Scene) -> None:
    flags = [part for one in scene.replicas[:2] for part in ("--replica", one.settings["url"])]
    router = await scene.start(*flags, "--policy", "random")
    await scene.reload(3, policy="round-robin", max_body_bytes=10)
    assert len(await scene.listed()) == 2
    (await router.ask(chat())).refused(413, "body_too_large")
    assert '"changed":"max_body_bytes"' in router.output


async def test_replicas_of_the_admin_api_are_not_touched(scene: Scene) -> None:
    router = await scene.start()
    guest = scene.replicas[2]
    entry = json.dumps({**guest.settings, "weight": 5}).encode()
    assert (await router.admin_send(request("POST", "/admin/replicas", entry))).status == 201
    for count in (1, 3, 2):
        await scene.reload(count)
        rows = (await router.admin("/admin/replicas")).json()["replicas"]
        (row,) = [row for row in rows if row["name"] == guest.name]
        assert (row["origin"], row["weight"], row["duty"]) == ("admin", 5, "active")
    assert len(await scene.listed()) == 3


async def test_a_replica_is_changed_in_place(scene: Scene) -> None:
    router = await scene.start()
    one, two = scene.replicas[:2]
    assert (await router.ask(chat(stream=False))).status == 200
    one.settings |= {"weight": 3, "api_key": "sk-new", "labels": {"rack": "7"}}
    two.settings |= {"models": ["m2"]}
    await scene.reload()
    rows = {row["name"]: row for row in (await router.admin("/admin/replicas")).json()["replicas"]}
    row = rows[one.name]
    assert (row["weight"], row["labels"], row["state"]) == (3, {"rack": "7"}, "ready")
    assert rows[two.name]["models"] == ["m2"]
    assert (await router.ask(chat(stream=False))).status == 200
    assert one.requests[-1].head.get("authorization") == "Bearer sk-new"
    assert (await router.ask(chat(stream=False, model="m2"))).status == 200
    two.settings.pop("models")
    await scene.reload()

    async def asked_again() -> bool:
        rows = {row["name"]: row for row in (await router.admin("/admin/replicas")).json()["replicas"]}
        return bool(rows[two.name]["models"] == ["m1"])

    await eventually(asked_again, "the replica is asked for its models")


async def test_what_changes_is_in_effect_at_once(scene: Scene) -> None:
    router = await scene.start()
    status = await asks(router, chat(stream=False))
    assert status == 200
    big = chat(stream=False, pad="x" * 2000)
    assert await asks(router, big) == 200
    await scene.reload(
        policy="round-robin",
        max_body_bytes=1000,
        api_keys={"alice": "sk-alice"},
        aliases={"short": "m1"},
        log={"level": "debug"},
        admin={"allowed_urls": ["10.0.0.0/8"]},
    )
    keyed = {"Authorization": "Bearer sk-alice"}
    assert await asks(router, chat(stream=False)) == 401
    assert await asks(router, chat(stream=False, headers=keyed)) == 200
    assert await asks(router, chat(stream=False, headers=keyed, model="short")) == 200
    assert await asks(router, chat(stream=False, headers=keyed, pad="x" * 2000)) == 413
    refused = await router.admin_send(request("POST", "/admin/replicas", b'"http://11.0.0.1"'))
    assert "allowed_urls" in refused.refused(400, "invalid_request")["message"]
    await scene.reload(api_keys={"alice": "sk-other"})
    assert await asks(router, chat(stream=False, headers=keyed)) == 401
    await scene.reload()
    assert await asks(router, big) == 200
    assert await asks(router, chat(stream=False, model="short")) == 404


async def test_the_policies_of_pools_change_and_so_does_what_is_kept_of_decisions(scene: Scene) -> None:
    router = await scene.start(policy_options={"decisions_per_second": 0})
    assert await asks(router, chat()) == 200
    await scene.reload(pools={"m1": {"policy": "round-robin"}}, policy_options={"shadow": "random"})
    assert await asks(router, chat(headers={"X-Request-Id": "mine"})) == 200
    await scene.reload(pools={"m2": {"policy": "round-robin"}}, policy="power-of-two")
    assert await asks(router, chat()) == 200

    metrics = await router.metrics()
    for policy in ("least-outstanding", "round-robin", "power-of-two"):
        assert metrics.value("affinity_total", policy=policy) == 1
    assert metrics.value("shadow_total", policy="random") == 1
    listed = (await router.admin("/admin/decisions")).json()["decisions"]
    assert [one["policy"] for one in listed] == ["power-of-two", "round-robin"]
    assert listed[1]["request_id"] == "mine"


async def test_other_options_do_not_make_it_forget_where_prompts_are(scene: Scene) -> None:
    """A raw prompt is known by its beginning, as long as the router remembers that."""
    router = await scene.start(policy="prefix-hash")
    prompt = "once upon a time " * 40

    async def turn() -> str | None:
        body = json.dumps({"model": "m1", "prompt": prompt}).encode()
        answer = await router.ask(request("POST", "/v1/completions", body))
        assert answer.status == 200
        return answer.head.get("x-replicarouter-affinity")

    assert await turn() == "new"
    for options in ({"decisions_per_second": 1}, {"shadow": "random"}, {"prefix_index_bytes": 10_000_000}):
        await scene.reload(policy="prefix-hash", policy_options=options)
        prompt += "and then they went on " * 40
        assert await turn() == "hit"


async def test_session_keys_are_read_by_the_headers_of_now(scene: Scene) -> None:
    router = await scene.start(policy="session")
    keyed = chat(headers={"X-Own": "mine"})

    async def affinity() -> str | None:
        return (await router.ask(keyed)).head.get("x-replicarouter-affinity")

    assert await affinity() == "none"
    await scene.reload(policy="session", policy_options={"session_headers": ["X-Own"]})
    assert [await affinity() for _ in range(2)] == ["new", "hit"]


async def asks(router: Served, raw: bytes) -> int:
    return (await router.ask(raw)).status


async def test_times_and_attempts_change_for_requests_that_come(scene: Scene) -> None:
    gate = asyncio.Event()
    router = await scene.start()
    for replica in scene.replicas:
        replica.script = held(b"", gate, OK)
    before = await router.begin(chat(stream=False))
    await router.stage(sent=1)
    await scene.reload(timeouts={"total": 0.2})
    (await router.ask(chat(stream=False))).refused(504, "total_timeout")
    await scene.reload(timeouts={"response_head": 0.2})
    (await router.ask(chat(stream=False))).refused(504, "response_head_timeout")
    gate.set()
    assert (await before.answer()).status == 200


async def test_more_room_lets_in_who_waits(scene: Scene) -> None:
    gate = asyncio.Event()
    for replica in scene.replicas:
        replica.script = held(b"", gate, OK)
    router = await scene.start(admission={"max_outstanding_per_replica": 1})
    clients = [await router.begin(chat(stream=False)) for _ in range(6)]
    await router.stage(sent=2, queued=4)
    await scene.reload(admission={"max_outstanding_per_replica": 2})
    await router.stage(sent=4, queued=2)
    await scene.reload(3, admission={"max_outstanding_per_replica": 2})
    await router.stage(sent=6)
    await scene.reload(admission={"max_outstanding_per_replica": 2, "max_queued": 0})
    (await router.ask(chat(stream=False))).refused(429, "queue_full")
    gate.set()
    for client in clients:
        assert (await client.answer()).status == 200


async def test_what_cannot_change_is_named_and_the_rest_is_applied(scene: Scene) -> None:
    router = await scene.start()
    await scene.reload(3, connector={"limit": 5}, log={"format": "text"}, max_headers=7)
    assert len(await scene.listed()) == 3
    assert router.output.count("settings need a restart") == 1
    assert '"settings":"connector.limit, max_headers, log.format"' in router.output
    assert (await router.metrics()).value("connector_limit") == 0


async def test_a_file_of_keys_is_read_again(scene: Scene, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("alice sk-one\n")
    router = await scene.start("--watch", api_keys_file=str(keys))
    one, two = ({"Authorization": f"Bearer sk-{name}"} for name in ("one", "two"))
    assert await asks(router, chat(stream=False, headers=one)) == 200
    keys.write_text("alice sk-two\n")

    async def changed() -> bool:
        return await asks(router, chat(stream=False, headers=two)) == 200

    await eventually(changed, "the new key opens the door")
    assert await asks(router, chat(stream=False, headers=one)) == 401
    assert "sk-" not in router.output


async def test_a_certificate_is_replaced_and_running_connections_go_on(scene: Scene, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair, fresh = authority.issue("one"), authority.issue("two")
    scene.file.write_text(scene.text(2, tls=pair.settings))
    scene.router = router = await scene.serve(flags=("--config", str(scene.file)), up=False)
    trust = ssl.create_default_context(cafile=str(authority.cert))

    async def shown() -> str:
        """The name of the certificate that a new client is shown; empty while nobody listens."""
        try:
            reader, writer = await asyncio.open_connection(HOST, router.port, ssl=trust)
        except ConnectionRefusedError:
            return ""
        certificate = writer.get_extra_info("peercert")
        held_open.append((reader, writer))
        return str(certificate["subject"][0][0][1])

    held_open: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    assert await eventually(shown, "it listens", deadline=20) == "one"
    told = scene.told()
    pair.cert.write_bytes(fresh.cert.read_bytes())
    router.process.send_signal(signal.SIGHUP)
    await eventually(lambda: scene.told("not reloaded"), "a key of another certificate is told")
    assert await shown() == "one"
    pair.key.write_bytes(fresh.key.read_bytes())
    router.process.send_signal(signal.SIGHUP)
    await eventually(lambda: scene.told() > told, "the settings are read")
    assert await shown() == "two"
    reader, writer = held_open[0]
    writer.write(request("GET", "/health"))
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    for _, writer in held_open:
        writer.close()
        await writer.wait_closed()
