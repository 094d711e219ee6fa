"""Numbers and texts of others in sentences."""

import pytest

from replicarouter.words import MOST_WRITTEN, Written, counted, printable, seconds_text


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


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", ""),
        ("plain ü 模型", "plain ü 模型"),
        ("two\nlines\r", "two\\nlines\\r"),
        ("\x1b[2Jgone", "\\u001b[2Jgone"),
        ("\u202e\x9b\x7f", "\\u202e\\u009b\\u007f"),
        ("\udcff", "\\udcff"),
    ],
)
def test_no_text_of_others_moves_a_cursor_or_begins_a_line(text: str, told: str) -> None:
    assert printable(text) == told
    assert told.isprintable()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((None, "–"), (0.0115, "12 ms"), (0.0123, "12 ms"), (0.999, "999 ms")),
        *((1.0, "1.00 s"), (2.5, "2.50 s"), (75.128, "75.13 s")),
    ],
)
def test_duration(value: float | None, text: str) -> None:
    assert seconds_text(value) == text


def test_texts_of_small_numbers_are_kept() -> None:
    asked: list[int] = []

    def write(number: int) -> str:
        asked.append(number)
        return f"<{number}>"

    written = Written(write)
    for number in (0, 7, MOST_WRITTEN, -1):
        assert [written[number], written[number]] == [f"<{number}>"] * 2
    assert asked == [0, 7, MOST_WRITTEN, MOST_WRITTEN, -1, -1]
