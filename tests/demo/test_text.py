"""Numbers as people read them."""

import pytest

from replicarouter.demo.text import flag, number, share


@pytest.mark.parametrize(("value", "text"), [(None, "–"), (0, "0"), (12345, "12,345"), (99.7, "100")])
def test_count(value: float | None, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(("value", "text"), [(None, "–"), (0.0, "0.0%"), (0.125, "12.5%"), (1.0, "100.0%")])
def test_share(value: float | None, text: str) -> None:
    assert share(value) == text


@pytest.mark.parametrize(("value", "text"), [(True, "1"), (False, "0")])
def test_flag(value: bool, text: str) -> None:
    assert flag(value) == text
