"""Certificates for tests, signed by an authority that nobody else knows; made by the command `openssl`."""

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

_CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, as PEM files."""

    cert: Path
    key: Path

    @property
    def settings(self) -> dict[str, str]:
        """As the router's section `tls` has them."""
        return {"cert": str(self.cert), "key": str(self.key)}

    def server(self) -> ssl.SSLContext:
        """What a server shows."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.cert, self.key)
        return context


def trusting(cert: Path) -> ssl.SSLContext:
    """A client that trusts this one certificate, whoever signed it."""
    context = ssl.create_default_context(cafile=str(cert))
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


class Authority:
    """Signs certificates in a folder of its own."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self.cert, self._key = folder / f"{name}.pem", folder / f"{name}.key"
        self._openssl(
            *("req", "-x509", *_CURVE, "-nodes", "-days", "2", "-subj", f"/CN={name}"),
            *("-addext", "basicConstraints=critical,CA:TRUE"),
            *("-keyout", str(self._key), "-out", str(self.cert)),
        )

    def issue(self, name: str = "server", *, for_names: str = "IP:127.0.0.1,DNS:localhost") -> Pair:
        """A certificate for these names, and its key."""
        pair = Pair(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        self._openssl(
            *("req", "-x509", *_CURVE, "-nodes", "-days", "1", "-subj", f"/CN={name}"),
            *("-CA", str(self.cert), "-CAkey", str(self._key)),
            *("-addext", "basicConstraints=critical,CA:FALSE", "-addext", f"subjectAltName={for_names}"),
            *("-keyout", str(pair.key), "-out", str(pair.cert)),
        )
        return pair

    @classmethod
    def lock(cls, key: Path) -> None:
        """Put a passphrase on a key."""
        locked = key.with_suffix(".locked")
        cls._openssl("pkey", "-in", str(key), "-out", str(locked), "-aes256", "-passout", "pass:secret")
        locked.replace(key)

    @staticmethod
    def _openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True)
