"""Certificates and authorities: which files will do, what others are told, and that new ones take over."""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from replicarouter.settings import SettingsError, TlsSettings
from replicarouter.tls import HELD, ClientTls, ReplicaTls, bound_buffers, check_files
from tests.fakes.certificates import Authority, Pair, trusting
from tests.fakes.client import HOST, Client
from tests.fakes.wire import Wire


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def settings(pair: Pair | None = None, replica_ca: Path | None = None) -> TlsSettings:
    values = pair.settings if pair is not None else {}
    return TlsSettings.model_validate({**values, "replica_ca": replica_ca})


def shake_hands(server: ssl.SSLContext | None, client: ssl.SSLContext) -> ssl.SSLObject:
    """What a client has of a server after the handshake, without a socket between them."""
    assert server is not None
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    there = server.wrap_bio(to_server, to_client, server_side=True)
    here = client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    for side in (here, there, here, there):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return here


def subject(server: ssl.SSLContext | None, authority: Authority) -> str:
    """The name on the certificate that a client is shown."""
    client = ssl.create_default_context(cafile=str(authority.cert))
    certificate = shake_hands(server, client).getpeercert()
    assert certificate is not None
    return dict(part for parts in certificate["subject"] for part in parts)["commonName"]  # type: ignore[misc]


def test_without_a_certificate_there_is_no_tls_to_clients() -> None:
    assert ClientTls(settings()).context is None


def test_clients_are_shown_the_certificate(authority: Authority) -> None:
    tls = ClientTls(settings(authority.issue("first")))
    assert subject(tls.context, authority) == "first"
    assert tls.context is not None
    assert tls.context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_a_new_certificate_is_shown_by_the_same_context(authority: Authority) -> None:
    tls = ClientTls(settings(authority.issue("first")))
    context = tls.context
    tls.replace(settings(authority.issue("second")))
    assert tls.context is context
    assert subject(context, authority) == "second"


def test_a_new_certificate_that_cannot_be_used_leaves_the_old_one(
    authority: Authority, tmp_path: Path
) -> None:
    tls = ClientTls(settings(authority.issue("first")))
    second = authority.issue("second")
    with pytest.raises(SettingsError):
        tls.replace(settings(Pair(second.cert, authority.issue("third").key)))
    second.key.write_text("nonsense")
    with pytest.raises(SettingsError):
        tls.replace(settings(second))
    assert subject(tls.context, authority) == "first"


def test_a_certificate_whose_file_is_written_anew_is_shown(authority: Authority) -> None:
    pair = authority.issue("same")
    tls = ClientTls(settings(pair))
    renewed = authority.issue("renewed")
    pair.cert.write_bytes(renewed.cert.read_bytes())
    pair.key.write_bytes(renewed.key.read_bytes())
    tls.replace(settings(pair))
    assert subject(tls.context, authority) == "renewed"


def missing(pair: Pair) -> str:
    pair.key.unlink()
    return "tls.key"


def garbled(pair: Pair) -> str:
    pair.cert.write_text("-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n")
    return "tls.cert"


def empty(pair: Pair) -> str:
    pair.cert.write_text("")
    return "tls.cert"


def folder(pair: Pair) -> str:
    pair.cert.unlink()
    pair.cert.mkdir()
    return "tls.cert"


def swapped(pair: Pair) -> str:
    cert = pair.cert.read_bytes()
    pair.cert.write_bytes(pair.key.read_bytes())
    pair.key.write_bytes(cert)
    return "tls.cert"


@pytest.mark.parametrize("spoil", [missing, garbled, empty, folder, swapped])
def test_files_that_cannot_be_used_are_named(
    tmp_path: Path, authority: Authority, spoil: Callable[[Pair], str]
) -> None:
    pair = Authority(tmp_path).issue("spoilt")
    named = spoil(pair)
    with pytest.raises(SettingsError, match=rf"^{named}: '.*spoilt") as caught:
        ClientTls(settings(pair))
    assert "_ssl.c" not in str(caught.value)


def test_a_key_with_a_passphrase_is_refused_without_asking_for_it(tmp_path: Path) -> None:
    pair = Authority(tmp_path).issue()
    Authority.lock(pair.key)
    with pytest.raises(SettingsError, match="passphrase"):
        ClientTls(settings(pair))


@pytest.mark.parametrize("content", [None, b"", b"no certificate"])
def test_authorities_that_cannot_be_read_are_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_bytes(content)
    for use in (ReplicaTls, check_files):
        with pytest.raises(SettingsError, match=r"^tls.replica_ca: '.*ca.pem' is refused"):
            use(settings(replica_ca=path))


def test_replicas_are_believed_when_a_named_authority_vouches_for_them(
    authority: Authority, tmp_path: Path
) -> None:
    server = authority.issue("replica").server()
    tls = ReplicaTls(settings())
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server, tls.context)
    tls.replace(settings(replica_ca=authority.cert))
    assert shake_hands(server, tls.context).version() == "TLSv1.3"


def test_the_name_on_a_certificate_counts(authority: Authority) -> None:
    server = authority.issue("other", for_names="DNS:other.example").server()
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server, ReplicaTls(settings(replica_ca=authority.cert)).context)


async def test_a_tls_transport_holds_no_more_than_a_plain_one(tmp_path: Path) -> None:
    pair = Authority(tmp_path).issue()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Wire, HOST, 0, ssl=pair.server())
    client = await Client.connect(server.sockets[0].getsockname()[1], tls=trusting(pair.cert))
    transport = client.wire.transport
    assert transport.get_write_buffer_limits()[1] > HELD
    bound_buffers(transport)
    assert transport.get_write_buffer_limits()[1] == HELD
    assert transport.get_read_buffer_limits()[1] == HELD  # type: ignore[attr-defined]
    await client.closed()
    server.close()
