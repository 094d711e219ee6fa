"""Numbers in sentences."""

import pytest

from replicarouter.words import counted


@pytest.mark.parametrize(
    ("count", "told"),
    [
        (0, "0 seconds"),
        (1, "1 second"),
        (2, "2 seconds"),
        (1234567, "1234567 seconds"),
        (1.0, "1 second"),
        (0.5, "0.5 seconds"),
        (60.0, "60 seconds"),
    ],
)
def test_only_one_is_no_several(count: float, told: str) -> None:
    assert counted(count, "second") == told
