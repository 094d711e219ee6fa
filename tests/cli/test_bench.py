"""`replicarouter bench`: which campaigns there are."""

import pytest

from replicarouter.cli import main


def test_help_names_the_campaigns(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["bench", "--help"])
    assert left.value.code == 0
    assert "replay" in capsys.readouterr().out


@pytest.mark.parametrize("words", [[], ["nothing"]])
def test_without_a_known_campaign_it_is_bad_usage(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["bench", *words])
    assert left.value.code == 2
    assert "bench --help" in capsys.readouterr().err
