"""What the files hold that settings come from."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from replicarouter.settings import Settings

Fingerprint = tuple[str, ...]
"""Equal as long as the files hold the same, however they were replaced."""


def files_of(settings: Settings, config: Path | None) -> tuple[Path, ...]:
    """The files that are read along with the settings: their own, the keys and the certificates."""
    tls = settings.tls
    files = (config, settings.api_keys_file, tls.cert, tls.key, tls.replica_ca)
    return tuple(file for file in files if file is not None)


def fingerprint(files: Iterable[Path]) -> Fingerprint:
    """Read the files. Times and inodes are no proof: they differ for equal content, and the reverse."""
    return tuple(_digest(file) for file in files)


def _digest(file: Path) -> str:
    try:
        return hashlib.blake2b(file.read_bytes()).hexdigest()
    except OSError as error:
        return type(error).__name__
