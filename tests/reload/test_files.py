"""Whether the files that settings come from hold something else than before."""

import os
from pathlib import Path

import pytest

from replicarouter.reload.files import files_of, fingerprint
from replicarouter.settings import Settings


def test_the_files_are_those_that_are_read() -> None:
    values = {
        "replicas": ["http://a"],
        "api_keys_file": "keys",
        "tls": {"cert": "cert", "key": "key", "replica_ca": "ca"},
    }
    files = files_of(Settings.model_validate(values), Path("config"))
    assert [str(file) for file in files] == ["config", "keys", "cert", "key", "ca"]
    assert files_of(Settings.model_validate({"replicas": ["http://a"]}), None) == ()


def test_the_same_content_is_the_same_however_it_came_there(tmp_path: Path) -> None:
    file, other = tmp_path / "file", tmp_path / "other"
    file.write_text("one")
    before = fingerprint([file])
    other.write_text("one")
    other.replace(file)
    os.utime(file, (5, 5))
    assert fingerprint([file]) == before


def test_other_content_of_the_same_size_and_age_is_another(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("one")
    os.utime(file, (5, 5))
    before = fingerprint([file])
    file.write_text("two")
    os.utime(file, (5, 5))
    assert fingerprint([file]) != before


@pytest.mark.parametrize("how", ["missing", "a folder"])
def test_a_file_that_cannot_be_read_differs_from_every_other(tmp_path: Path, how: str) -> None:
    file, empty = tmp_path / "file", tmp_path / "empty"
    empty.touch()
    if how == "a folder":
        file.mkdir()
    assert fingerprint([file]) == fingerprint([file])
    assert fingerprint([file]) != fingerprint([empty])
