"""What holds for every dialect in the table, over every page we have."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from replicarouter.engines import DIALECTS, PARSER, detect

PAGES = sorted(path.stem for path in (Path(__file__).parent / "data").glob("*.txt"))
ENGINE_OF_PAGE = {"vllm": "vllm", "sglang": "sglang", "llama.cpp": "generic"}

COUNTS = (
    "running",
    "waiting",
    "kv_usage",
    "preemptions",
    "prefix_queries",
    "prefix_hits",
    "spec_accept_length",
    "spec_draft_length",
    "steps",
    "start_time",
    "kv_capacity",
)


@pytest.mark.parametrize("name", DIALECTS)
def test_a_dialect_is_listed_under_its_own_name(name: str) -> None:
    assert DIALECTS[name].name == name


@pytest.mark.parametrize("page_name", PAGES)
@pytest.mark.parametrize("name", DIALECTS)
def test_every_dialect_reads_every_page_into_finite_numbers_that_are_not_negative(
    name: str, page_name: str, page: Callable[[str], bytes]
) -> None:
    reading = DIALECTS[name].read(PARSER.parse(page(page_name)))

    values = [getattr(reading, count) for count in COUNTS]
    assert all(value is None or (math.isfinite(value) and value >= 0) for value in values)
    assert reading.kv_usage is None or reading.kv_usage <= 1


@pytest.mark.parametrize("name", DIALECTS)
def test_an_empty_page_leaves_everything_unknown(name: str) -> None:
    reading = DIALECTS[name].read(PARSER.parse(b""))

    assert all(getattr(reading, count) is None for count in COUNTS)
    assert reading.model == ""
    assert reading.cache_dtype == ""


@pytest.mark.parametrize("page_name", PAGES)
def test_the_engine_is_detected_from_its_page(page_name: str, page: Callable[[str], bytes]) -> None:
    expected = next(engine for prefix, engine in ENGINE_OF_PAGE.items() if page_name.startswith(prefix))

    assert detect(PARSER.parse(page(page_name))).name == expected


@pytest.mark.parametrize("page_name", PAGES)
def test_a_page_of_the_own_engine_misses_nothing(page_name: str, page: Callable[[str], bytes]) -> None:
    samples = PARSER.parse(page(page_name))

    assert detect(samples).read(samples).missing == ()


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_an_engine_that_says_nothing_is_reported_as_missing_its_series(name: str) -> None:
    missing = DIALECTS[name].read(PARSER.parse(b"")).missing

    assert missing
    assert all(series.startswith(f"{name}:") for series in missing)
