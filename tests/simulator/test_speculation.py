import pytest

from replicarouter.simulator.speculation import Speculation

DRAFTS = 4000


@pytest.mark.parametrize(("acceptance", "always"), [(0.0, 0), (1.0, 3)])
def test_nothing_or_everything_is_accepted_at_the_ends(acceptance: float, always: int) -> None:
    speculation = Speculation(3, acceptance)
    assert {speculation.accepted() for _ in range(DRAFTS)} == {always}


def test_mean_is_that_of_independent_acceptance() -> None:
    """A sum of powers: a token counts only if all before it were accepted."""
    speculation = Speculation(3, 0.7)
    mean = sum(speculation.accepted() for _ in range(DRAFTS)) / DRAFTS
    assert mean == pytest.approx(0.7 + 0.7**2 + 0.7**3, rel=0.05)


def test_same_seed_draws_the_same() -> None:
    one, same, other = Speculation(3, 0.5), Speculation(3, 0.5), Speculation(3, 0.5, seed=1)
    drawn = [one.accepted() for _ in range(50)]
    assert [same.accepted() for _ in range(50)] == drawn
    assert [other.accepted() for _ in range(50)] != drawn
