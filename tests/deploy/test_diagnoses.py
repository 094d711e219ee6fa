"""The worked diagnoses say what the program says, word for word, of pages that a real router wrote."""

import re

import pytest

from benchmarks.diagnoses import CASES, FOLDER, PAGE, Case
from benchmarks.record_diagnoses import block, found, session

TEXT = PAGE.read_text()
MOST_BYTES = 400_000


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param  # type: ignore[no-any-return]


def test_the_output_on_the_page_is_what_the_program_says(case: Case) -> None:
    """Where it differs on purpose: `python -m benchmarks.record_diagnoses --outputs-only`, and read it."""
    shown = block(case).search(TEXT)
    assert shown is not None
    assert shown.group() == session(case)


def test_the_verdict_that_the_case_is_about_comes_first(case: Case) -> None:
    assert found(case)


def test_the_page_shows_every_recording_and_no_other() -> None:
    recorded = {file.name for file in FOLDER.glob("*.txt")}
    assert recorded == {page.name for case in CASES for page in case.pages}
    assert len(re.findall(r"^\$ replicarouter", TEXT, re.MULTILINE)) == len(CASES)


def test_recordings_are_small_and_tell_nothing_of_the_machine() -> None:
    pages = [page.read_text() for case in CASES for page in case.pages]
    assert sum(map(len, pages)) < MOST_BYTES
    assert not re.search(r"/|127\.0\.0\.1|localhost", re.sub(r'endpoint="[^"]*"', "", "".join(pages)))


def test_every_case_says_what_is_seen_how_to_read_it_and_how_the_cure_is_verified() -> None:
    healthy, *others = re.split(r"^## \d+ ", TEXT, flags=re.MULTILINE)[1:]
    assert "**How to read it.**" in healthy
    for section in others:
        marks = re.findall(r"^\*\*(You see|How to read it|Change|Verify)\b", section, re.MULTILINE)
        assert marks == ["You see", "How to read it", "Change", "Verify"], section[:60]


def test_every_series_it_names_is_on_the_recorded_pages() -> None:
    text = CASES[0].pages[1].read_text()
    for name in set(re.findall(r"replicarouter_[a-z_]+", TEXT)):
        assert re.search(rf"^{name}(?:_sum)?\b", text, re.MULTILINE), name


def test_every_link_leads_somewhere() -> None:
    links = re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", TEXT)
    assert len(links) > 20
    for path, anchor in links:
        file = FOLDER / path if path else PAGE
        heads = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE)
        assert not anchor or anchor in {
            re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads
        }, (path, anchor)
