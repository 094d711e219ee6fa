"""The recorded metrics pages under `data/`."""

from collections.abc import Callable
from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"


@pytest.fixture
def page() -> Callable[[str], bytes]:
    """Return the bytes of a page by its file name without the suffix."""
    return lambda name: (DATA / f"{name}.txt").read_bytes()
