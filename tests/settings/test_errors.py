"""The wording of messages about settings."""

import pytest

from replicarouter.settings.errors import Location, dotted, shown, unknown


@pytest.mark.parametrize(
    ("location", "text"),
    [
        ((), ""),
        (("port",), "port"),
        (("admin", "port"), "admin.port"),
        (("replicas", 0, "url"), "replicas[0].url"),
        (("api_keys", 2), "api_keys[2]"),
    ],
)
def test_place_is_written_as_people_do(location: Location, text: str) -> None:
    assert dotted(location) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5, "5"),
        (0.5, "0.5"),
        ("5", "'5'"),
        (True, "true"),
        (None, "null"),
        ("a\nb", r"'a\nb'"),
        ({"key": "secret"}, "a mapping"),
        (["secret"], "a list"),
        ([], "an empty list"),
    ],
)
def test_value_is_shown_without_what_may_be_secret(value: object, text: str) -> None:
    assert shown(value) == text


def test_long_value_is_cut() -> None:
    assert len(shown("x" * 10_000)) < 120


def test_unknown_name_is_answered_with_the_closest_one() -> None:
    assert unknown("admin.prot", "file", ["host", "port"]) == (
        "admin.prot (file): unknown; did you mean port?"
    )


def test_unknown_name_far_from_all_is_answered_with_all() -> None:
    assert unknown("zzz", "file", ["host", "port"]) == "zzz (file): unknown; known are host, port"
