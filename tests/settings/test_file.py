"""Reading the YAML file: values, lines, and what can be wrong with a file."""

from pathlib import Path

import pytest

from replicarouter.errors import SettingsError
from replicarouter.settings.file import FileContent, read_settings_file


def read(text: str, tmp_path: Path) -> FileContent:
    file = tmp_path / "router.yaml"
    file.write_text(text, encoding="utf-8")
    return read_settings_file(file)


def test_values_come_with_their_lines(tmp_path: Path) -> None:
    content = read("port: 1\nadmin:\n  host: a\nreplicas:\n  - http://a\n  - url: http://b\n", tmp_path)
    assert content.values == {
        "port": 1,
        "admin": {"host": "a"},
        "replicas": ["http://a", {"url": "http://b"}],
    }
    assert content.lines == {
        ("port",): 1,
        ("admin",): 2,
        ("admin", "host"): 3,
        ("replicas",): 4,
        ("replicas", 0): 5,
        ("replicas", 1): 6,
        ("replicas", 1, "url"): 6,
    }


@pytest.mark.parametrize("text", ["", "\n", "# nothing yet\n", "---\n"])
def test_empty_file_says_nothing(text: str, tmp_path: Path) -> None:
    assert read(text, tmp_path).values == {}


def test_json_is_yaml(tmp_path: Path) -> None:
    assert read('{"port": 1, "replicas": ["http://a"]}', tmp_path).values["port"] == 1


def test_nothing_after_a_key_is_not_a_value(tmp_path: Path) -> None:
    content = read("port:\nadmin: {host: ~, port: 1}\nreplicas: [{url: a, name: null}]", tmp_path)
    assert content.values == {"admin": {"port": 1}, "replicas": [{"url": "a"}]}


def test_anchors_and_merge_keys_work(tmp_path: Path) -> None:
    text = "replicas:\n  - &one {url: a, weight: 2}\n  - {<<: *one, url: b}\n  - *one\n"
    assert read(text, tmp_path).values["replicas"] == [
        {"url": "a", "weight": 2},
        {"url": "b", "weight": 2},
        {"url": "a", "weight": 2},
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("- a\n- b\n", "router.yaml line 1: give settings as `key: value`"),
        ("just words", "router.yaml line 1: give settings as `key: value`"),
        ("port: 1\nport: 2", "router.yaml line 2: port is given twice, first on line 1"),
        ("admin:\n  port: 1\n  port: 2", "line 3: admin.port is given twice, first on line 2"),
        ("a: 1\n8080: 2", "router.yaml line 2: a key must be text"),
        ("on: 1", "router.yaml line 1: a key must be text"),
        ("? [a]\n: b", "router.yaml line 1: a key must be text"),
        ("port: 1: 2", "router.yaml line 1, column 8: not YAML"),
        ("{port: 1", "router.yaml line 1, column 9: not YAML"),
        ("port: [1,\nhost: ]x", "router.yaml line 2"),
        ("a: 1\n---\nb: 2\n", "router.yaml line 2, column 1: not YAML"),
        ("replicas: *nobody", "router.yaml line 1, column 11: not YAML"),
        ("x: !!python/object/apply:os.getcwd []", "router.yaml line 1, column 4: not YAML"),
        ("port: 1\nhost: 'a\u0007'", "router.yaml line 2: not YAML"),
        ("port: 2024-99-99", "router.yaml: not YAML"),
        (f"port: {'9' * 5000}", "router.yaml: not YAML"),
        ("replicas: &all [*all]", "router.yaml line 1: replicas[0] contains itself"),
        ("admin: &all {host: *all}", "router.yaml line 1: admin.host contains itself"),
        (f"port: {'[' * 5000}", "router.yaml: not YAML"),
    ],
)
def test_broken_file_is_told_with_its_line(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        read(text, tmp_path)
    assert told in str(caught.value)


def test_repeated_aliases_do_not_multiply_the_work(tmp_path: Path) -> None:
    levels = [f"a{depth}: &a{depth} [{', '.join([f'*a{depth - 1}'] * 9)}]" for depth in range(1, 5)]
    content = read("\n".join(["a0: &a0 [x]", *levels]), tmp_path)
    assert len(content.lines) == 5 + 1 + 4 * 9


def test_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere\.yaml: no such file"):
        read_settings_file(tmp_path / "nowhere.yaml")


def test_unreadable_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read: Is a directory"):
        read_settings_file(tmp_path)


def test_file_that_is_not_text_is_told(tmp_path: Path) -> None:
    file = tmp_path / "router.yaml"
    file.write_bytes(b"host: \xff\xfe")
    with pytest.raises(SettingsError, match="is not UTF-8 text"):
        read_settings_file(file)
