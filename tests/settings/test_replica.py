"""One entry of `replicas:`."""

from typing import Any

import pytest
from pydantic import ValidationError

from replicarouter.settings.replica import EngineName, ReplicaSettings, canonical_url


def replica(entry: Any) -> ReplicaSettings:
    return ReplicaSettings.model_validate(entry)


def problem(entry: Any) -> tuple[tuple[int | str, ...], str]:
    with pytest.raises(ValidationError) as caught:
        replica(entry)
    first = caught.value.errors()[0]
    return first["loc"], first["msg"]


@pytest.mark.parametrize(
    ("given", "url", "name"),
    [
        ("http://127.0.0.1:8001", "http://127.0.0.1:8001", "127.0.0.1:8001"),
        ("http://127.0.0.1:8001/", "http://127.0.0.1:8001", "127.0.0.1:8001"),
        ("HTTP://Engine.Example", "http://engine.example", "engine.example:80"),
        ("https://engine.example", "https://engine.example", "engine.example:443"),
        ("https://engine.example:443/", "https://engine.example", "engine.example:443"),
        ("http://engine:443", "http://engine:443", "engine:443"),
        ("http://[::1]:8001", "http://[::1]:8001", "[::1]:8001"),
        ("http://engine:1/base/path/", "http://engine:1/base/path", "engine:1"),
        ("http://engine_0:1", "http://engine_0:1", "engine_0:1"),
    ],
)
def test_url_is_written_in_one_way_and_names_the_replica(given: str, url: str, name: str) -> None:
    assert (replica(given).url, replica(given).name) == (url, name)
    assert replica({"url": given}) == replica(given)
    assert canonical_url(url) == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "engine",
        "engine:8001",
        "127.0.0.1:8001",
        "ftp://engine",
        "file:///etc/hosts",
        "http://",
        "http://:8001",
        "http:///path",
        "http://engine:0",
        "http://engine:65536",
        "http://engine:port",
        "http://[::1",
        "http://[::g]:1",
        "http://a b",
        "http://a/b c",
        "http://a\\b",
        "http://a\n",
        " http://a",
        "http://bücher.example",
        8001,
        None,
    ],
)
def test_what_is_no_replica_url_is_refused(url: object) -> None:
    place, told = problem({"url": url})
    assert place == ("url",)
    assert "an http:// or https:// URL with a host" in told


@pytest.mark.parametrize("url", ["http://user:word@engine", "http://user@engine", "http://@engine"])
def test_credentials_in_a_url_are_refused_with_the_way_to_give_them(url: str) -> None:
    place, told = problem(url)
    assert place == ("url",)
    assert "api_key" in told


@pytest.mark.parametrize("url", ["http://engine?x=1", "http://engine/?", "http://engine#top"])
def test_query_and_fragment_are_refused(url: str) -> None:
    assert "without query and fragment" in problem(url)[1]


@pytest.mark.parametrize("entry", [5, None, ["http://a"], True])
def test_entry_that_is_neither_url_nor_mapping_is_refused(entry: object) -> None:
    assert "a URL, or a mapping with the key url" in problem(entry)[1]


def test_mapping_says_everything_about_a_replica() -> None:
    whole = replica(
        {
            "url": "http://engine:1",
            "name": "gpu-0",
            "weight": 2,
            "max_outstanding": 8,
            "role": "decode",
            "engine": "sglang",
            "api_key": "sk-1",
            "models": ["small", "large"],
            "max_num_seqs": 64,
            "labels": {"rack": "b"},
        }
    )
    assert (whole.name, whole.weight, whole.max_outstanding) == ("gpu-0", 2.0, 8)
    assert (whole.role, whole.engine, whole.max_num_seqs) == ("decode", "sglang", 64)
    assert whole.models == ["small", "large"]
    assert whole.labels == {"rack": "b"}
    assert whole.api_key is not None
    assert whole.api_key.get_secret_value() == "sk-1"


def test_url_alone_leaves_the_rest_at_its_default() -> None:
    plain = replica("http://engine:1")
    assert (plain.weight, plain.role, plain.engine, plain.labels) == (1.0, "both", "auto", {})
    assert (plain.max_outstanding, plain.api_key, plain.models, plain.max_num_seqs) == (None,) * 4


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("name", "a b"),
        ("name", "a/b"),
        ("name", 'a"b'),
        ("name", "a\n"),
        ("name", "x" * 129),
        ("weight", 0),
        ("weight", -1),
        ("max_outstanding", -1),
        ("role", "encode"),
        ("engine", "tgi"),
        ("api_key", ""),
        ("api_key", "a\nb"),
        ("models", []),
        ("models", "small"),
        ("max_num_seqs", 0),
        ("labels", ["a"]),
    ],
)
def test_bad_field_of_a_replica_is_named(field: str, value: object) -> None:
    place, told = problem({"url": "http://engine:1", field: value})
    assert place == (field,)
    assert "Input should" not in told


def test_unknown_field_of_a_replica_is_refused() -> None:
    assert problem({"url": "http://engine:1", "wieght": 2})[0] == ("wieght",)


def test_engines_are_those_with_a_dialect() -> None:
    from typing import get_args  # noqa: PLC0415

    from replicarouter.engines import DIALECTS  # noqa: PLC0415

    assert get_args(EngineName) == ("auto", *DIALECTS)
