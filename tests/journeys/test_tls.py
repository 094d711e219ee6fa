"""TLS on either side of the router: the same bytes, the same endings, the same pressure."""

import asyncio
import ssl
from pathlib import Path

import pytest

from tests.fakes.certificates import Authority
from tests.fakes.client import Client, chat, request
from tests.fakes.message import LAST_CHUNK
from tests.fakes.replica import (
    SHORT_STREAM,
    SSE_HEAD,
    Connection,
    FakeReplica,
    Received,
    event,
    reply,
    silence,
    sized,
    stall,
)
from tests.fakes.running import RunningRouter, StartRouter
from tests.fakes.served import Serve
from tests.fakes.wire import Ending, Wire, eventually

PIECE = b"x" * 65536
BOUND = 24 * 1024 * 1024
"""Bytes that the sockets on loopback and the router's share may hold."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def secure(authority: Authority) -> dict[str, str]:
    """The section `tls` of a router that is secure on both sides."""
    return {**authority.issue("router").settings, "replica_ca": str(authority.cert)}


def replica_with_tls(authority: Authority, **options: object) -> FakeReplica:
    script = options.pop("script", None)
    return FakeReplica(script, tls=authority.issue("replica").server(), **options)  # type: ignore[arg-type]


async def test_a_stream_crosses_both_sides_byte_for_byte(
    start_router: StartRouter, authority: Authority, secure: dict[str, str]
) -> None:
    replica = replica_with_tls(authority, script=reply(SHORT_STREAM))
    router = await start_router(replica, tls=secure)
    client = await router.connect()
    for _ in range(3):
        answer = await client.ask(chat())
        assert SHORT_STREAM.endswith(answer.body.raw)
        assert answer.body.raw.endswith(LAST_CHUNK)
    cipher = client.wire.transport.get_extra_info("ssl_object")
    assert cipher.version() == "TLSv1.3"
    assert len(replica.used_connections) == 1
    assert (await router.settled()).finished == {"ok": 3}


async def test_probes_and_scrapes_use_tls_too(
    start_router: StartRouter, authority: Authority, secure: dict[str, str]
) -> None:
    replica = replica_with_tls(authority, base_path="/base/one")
    replica.probes.gauges = {"vllm:num_requests_running": 3.0}
    router = await start_router(replica, tls=secure)

    async def scraped() -> bool:
        return (await router.metrics()).value("engine_requests_running", replica=replica.name) == 3

    await eventually(scraped, "the engine's own count is read")
    assert (await router.ask(chat())).status == 200
    assert replica.requests[0].target == "/base/one/v1/chat/completions"
    assert replica.requests[0].head.get("host") == f"127.0.0.1:{replica.port}"
    assert {one.target for one in replica.probed} >= {"/base/one/health", "/base/one/metrics"}


async def test_server_name_is_that_of_the_url(start_router: StartRouter, authority: Authority) -> None:
    named: list[str | None] = []
    context = authority.issue("named", for_names="DNS:localhost").server()
    context.sni_callback = lambda _object, name, _context: named.append(name)
    replica = FakeReplica(host="localhost", tls=context)
    router = await start_router(replica, tls={"replica_ca": str(authority.cert)})
    assert (await router.ask(chat())).status == 200
    assert set(named) == {"localhost"}


async def test_authorities_of_the_environment_count(
    start_router: StartRouter, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.cert))
    router = await start_router(replica_with_tls(authority))
    assert (await router.ask(chat())).status == 200


@pytest.mark.parametrize(
    ("names", "told"),
    [("IP:127.0.0.1", "tls.replica_ca"), ("DNS:other.example", "for another host than the one in its url")],
)
async def test_a_certificate_that_is_not_accepted_is_a_502_that_says_what_to_do(
    start_router: StartRouter, authority: Authority, tmp_path: Path, names: str, told: str
) -> None:
    stranger = Authority(tmp_path, "stranger") if "IP" in names else authority
    bad = stranger.issue("bad", for_names=names)
    replica = replica_with_tls(authority)
    router = await start_router(
        replica, tls={"replica_ca": str(authority.cert)}, health={"interval": 60, "unhealthy_after": 9}
    )
    assert replica.tls is not None
    replica.tls.load_cert_chain(bad.cert, bad.key)
    error = (await router.ask(chat())).refused(502, "connect_failed")
    assert told in error["message"]
    assert "127.0.0.1" not in error["message"]
    assert replica.requests == []


async def test_a_replica_nobody_vouches_for_does_not_become_ready(
    start_router: StartRouter, authority: Authority
) -> None:
    router = await start_router(replica_with_tls(authority), ready=0)
    (row,) = (await router.admin("/admin/replicas")).json()["replicas"]
    assert row["state"] != "ready"
    assert "tls.replica_ca" in row["why"]
    (await router.get("/ready")).refused(503, "no_replica")


async def test_plain_http_where_tls_is_spoken_ends_that_connection_alone(
    start_router: StartRouter, secure: dict[str, str]
) -> None:
    router = await start_router(FakeReplica(), tls=secure)
    plain = await Client.connect(router.port)
    await plain.send(chat())
    await plain.gone()
    await plain.closed()
    assert (await router.ask(chat())).status == 200


async def test_old_versions_of_tls_are_refused(start_router: StartRouter, secure: dict[str, str]) -> None:
    router = await start_router(FakeReplica(), tls=secure)
    old = ssl.create_default_context()
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.set_ciphers("DEFAULT:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.maximum_version = old.minimum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        await Client.connect(router.port, tls=old)


async def test_a_client_that_does_not_shake_hands_is_ended_in_time(
    start_router: StartRouter, secure: dict[str, str]
) -> None:
    router = await start_router(FakeReplica(), tls=secure, timeouts={"client_head": 0.2})
    silent = await Client.connect(router.port)
    await silent.gone()
    await silent.closed()


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("begun", [b"", SSE_HEAD + event("1")], ids=["before the head", "in the stream"])
async def test_a_client_that_leaves_aborts_its_request(
    start_router: StartRouter, authority: Authority, secure: dict[str, str], how: Ending, begun: bytes
) -> None:
    replica = replica_with_tls(authority, script=stall(begun) if begun else silence)
    router = await start_router(replica, tls=secure)
    client = await router.begin(chat())
    await replica.received()
    if begun:
        await client.wire.expect(event("1"))
    client.leave(how)
    await replica.requests[0].aborted()
    assert (await router.settled()).finished == {"client_gone": 1}


async def test_large_bodies_arrive_whole_in_both_directions(
    start_router: StartRouter, authority: Authority, secure: dict[str, str]
) -> None:
    large = bytes(range(256)) * 32768
    replica = replica_with_tls(authority, script=reply(sized(large)))
    router = await start_router(replica, tls=secure)
    body = b'{"model":"m1","prompt":"%b"}' % (b"y" * len(large))
    answer = await router.ask(request("POST", "/v1/completions", body), deadline=20)
    assert answer.body.entity == large
    assert replica.requests[0].body == body


async def at_rest(wire: Wire) -> int:
    """Wait until the peer of `wire` takes no more; how much it took."""
    seen = -1

    async def still() -> bool:
        nonlocal seen
        before, seen = seen, wire.count_written
        await asyncio.sleep(0.1)
        return wire.write_blocked and before == seen

    await eventually(still, "the sender is blocked", deadline=20)
    return wire.count_written


async def flood(_: Received, connection: Connection) -> None:
    """More than all buffers together hold."""
    await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (1024 * len(PIECE)))
    for _number in range(1024):
        await connection.send(PIECE)


async def stalled(router: RunningRouter) -> Client:
    client = await router.connect(receive_buffer=65536)
    await client.send(chat())
    await client.wire.expect(b"\r\n\r\n")
    client.wire.pause()
    return client


async def test_a_stalled_reader_blocks_the_replica_and_gets_every_byte_later(
    start_router: StartRouter, authority: Authority, secure: dict[str, str]
) -> None:
    replica = replica_with_tls(authority, script=flood)
    router = await start_router(replica, tls=secure)
    client = await stalled(router)
    assert await at_rest(replica.used_connections[0].wire) < BOUND
    client.wire.resume()
    answer = await client.answer(deadline=30)
    assert answer.ended == "clean"
    assert answer.body.entity == PIECE * 1024


async def test_a_reader_that_takes_nothing_is_closed_in_time(
    start_router: StartRouter, authority: Authority, secure: dict[str, str]
) -> None:
    replica = replica_with_tls(authority, script=flood)
    router = await start_router(replica, tls=secure, timeouts={"client_write": 0.3})
    await stalled(router)
    await replica.requests[0].aborted()
    assert (await router.settled()).finished == {"client_gone": 1}


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_a_replica_that_dies_in_its_stream_is_told_and_the_end_is_not_clean(
    start_router: StartRouter, authority: Authority, secure: dict[str, str], how: Ending
) -> None:
    replica = replica_with_tls(authority, script=reply(SSE_HEAD + event("1"), then=how))
    router = await start_router(replica, tls=secure)
    answer = await router.ask(chat())
    assert answer.ended == "dirty"
    assert b"replica_disconnected" in answer.body.raw


async def test_a_cut_body_that_ends_with_its_connection_does_not_look_whole(
    start_router: StartRouter, authority: Authority, secure: dict[str, str]
) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    replica = replica_with_tls(authority, script=reply(head + b"half", then="rst"))
    router = await start_router(replica, tls=secure)
    client = await router.begin(chat())
    await client.wire.expect(b"half")
    assert await client.gone() == "rst"


async def test_files_that_cannot_be_used_end_the_start_with_status_2(
    serve: Serve, tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = authority.issue("router")
    monkeypatch.setenv("REPLICAROUTER_TLS__CERT", str(pair.cert))
    monkeypatch.setenv("REPLICAROUTER_TLS__KEY", str(tmp_path / "nowhere.key"))
    served = await serve(FakeReplica(), up=False)
    assert await served.exit_status() == 2
    assert "tls.key" in served.output
    assert "nowhere.key" in served.output
    assert "Traceback" not in served.output
