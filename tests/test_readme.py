"""The README says what the program says."""

from pathlib import Path

import pytest

from replicarouter.cli import main

README = Path(__file__).parents[1] / "README.md"


def test_settings_table_is_that_of_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "reference"]) == 0
    text = README.read_text(encoding="utf-8")
    _, _, rest = text.partition("<!-- settings:begin -->\n")
    table, _, _ = rest.partition("<!-- settings:end -->")
    assert table.strip() == capsys.readouterr().out.strip()
