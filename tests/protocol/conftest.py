"""Answers recorded from vLLM 0.32.0 as they came over the wire, in `data/`."""

from collections.abc import Callable
from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"

Recorded = Callable[[str], tuple[bytes, bytes]]


@pytest.fixture
def recorded() -> Recorded:
    """Head (without its empty line) and raw body of an answer, by its name."""

    def read(name: str) -> tuple[bytes, bytes]:
        head, _, body = (DATA / f"vllm-0.32.0-{name}.http").read_bytes().partition(b"\r\n\r\n")
        return head, body

    return read
