"""TLS toward clients and toward replicas: contexts made of the settings' files, replaced in place."""

import asyncio
import ssl
from pathlib import Path
from typing import Protocol, cast

import aiohttp

from replicarouter.settings import SettingsError, TlsSettings

# Numbers of OpenSSL's X509_V_ERR_…, https://docs.openssl.org/3.0/man3/X509_STORE_CTX_get_error/
_OTHER_HOST = frozenset((62, 64))
_OTHER_TIME = frozenset((9, 10))

HELD = 65536
"""Bytes above which a TLS transport holds back its writer or its peer."""


class _SecureTransport(Protocol):
    """What the TLS transports of asyncio and uvloop offer beyond plain ones."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Say from how many unwritten bytes on the writer is told to pause."""

    def set_read_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Say how many bytes may be kept for a reader that has paused."""


class ClientTls:
    """What clients are shown. `context` is None without a certificate."""

    def __init__(self, settings: TlsSettings) -> None:
        self.context = _server_context(settings)

    def replace(self, settings: TlsSettings) -> None:
        """Show the certificate of these settings to whoever connects from now on.

        Raises `SettingsError` and keeps the old one when the new one cannot be used; whether there is
        TLS at all stays as it was at start.
        """
        fresh = _server_context(settings)
        if self.context is not None and fresh is not None:
            _load_pair(self.context, settings)


class ReplicaTls:
    """Whom we believe on the other side: the system's authorities (`SSL_CERT_FILE` names others) and
    those of `tls.replica_ca`."""

    def __init__(self, settings: TlsSettings) -> None:
        self.context = ssl.create_default_context()
        self.replace(settings)

    def replace(self, settings: TlsSettings) -> None:
        """Believe these authorities too; those believed before are believed until the next start.

        Raises `SettingsError` when the file cannot be used.
        """
        path = settings.replica_ca
        if path is None:
            return
        try:
            self.context.load_verify_locations(cafile=path)
        except OSError as error:
            raise SettingsError(_unusable("replica_ca", path, error, "certificates in PEM form")) from None


def check_files(settings: TlsSettings) -> None:
    """Raise `SettingsError` when a file of these settings cannot be used."""
    ClientTls(settings)
    ReplicaTls(settings)


def _server_context(settings: TlsSettings) -> ssl.SSLContext | None:
    if settings.cert is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    _load_pair(context, settings)
    return context


def _load_pair(context: ssl.SSLContext, settings: TlsSettings) -> None:
    cert, key = settings.cert, settings.key
    assert cert is not None
    assert key is not None
    for name, path in (("cert", cert), ("key", key)):
        try:
            path.open("rb").close()
        except OSError as error:
            raise SettingsError(_unusable(name, path, error, "a file in PEM form")) from None
    try:
        # A key behind a passphrase must not make the router ask for it on a terminal.
        context.load_cert_chain(cert, key, password=_no_passphrase)
    except (OSError, ValueError) as error:
        reason = _reason(error)
        raise SettingsError(
            f"tls.cert: {str(cert)!r} with tls.key {str(key)!r} is refused ({reason}): give a certificate "
            "chain and the private key of its first certificate, without a passphrase, in PEM form"
        ) from None


def _no_passphrase() -> str:
    raise ValueError("the key has a passphrase")


def _unusable(name: str, path: Path, error: OSError, accepted: str) -> str:
    return f"tls.{name}: {str(path)!r} is refused ({_reason(error)}): give {accepted}"


def _reason(error: Exception) -> str:
    """What is wrong in a few words: the library's own hold a place in its source."""
    if isinstance(error, ssl.SSLError):
        return (error.reason or "not usable").lower().replace("_", " ")
    if isinstance(error, OSError):
        return error.strerror or "cannot be read"
    return str(error)


def bound_buffers(transport: asyncio.BaseTransport) -> None:
    """Have a TLS transport hold as little as a plain one: by default it holds 512 KiB to be written and
    256 KiB that were read, for every stream whose reader is slow."""
    if transport.get_extra_info("sslcontext") is not None:
        secure = cast(_SecureTransport, transport)
        secure.set_write_buffer_limits(high=HELD)
        secure.set_read_buffer_limits(high=HELD)


def tls_failure(error: aiohttp.ClientSSLError) -> str:
    """Why TLS to a replica failed, and which setting to look at; names no address."""
    cause = error.certificate_error if isinstance(error, aiohttp.ClientConnectorCertificateError) else None
    if not isinstance(cause, ssl.SSLCertVerificationError):
        return "it does not speak TLS as expected; its url may have to begin with http://"
    if cause.verify_code in _OTHER_HOST:
        return "its certificate is for another host than the one in its url"
    if cause.verify_code in _OTHER_TIME:
        return f"its {cause.verify_message}"
    return f"its certificate is not trusted ({cause.verify_message}); see the setting tls.replica_ca"
