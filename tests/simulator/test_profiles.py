import pytest

from replicarouter.simulator.profiles import DEFAULT_PROFILE, PROFILES, Profile

PROFILE = Profile("measured", ((2, 0.010), (4, 0.014), (8, 0.030)), 0.001)


@pytest.mark.parametrize(
    ("sequences", "seconds"),
    [(1, 0.010), (2, 0.010), (3, 0.012), (4, 0.014), (6, 0.022), (8, 0.030), (10, 0.038)],
)
def test_step_time_is_linear_between_and_beyond_the_points(sequences: int, seconds: float) -> None:
    assert PROFILE.decode_seconds(sequences) == pytest.approx(seconds)


def test_prefill_adds_its_time_to_the_step() -> None:
    assert PROFILE.step_seconds(4, 100) == pytest.approx(0.114)


def test_default_profile_has_the_published_times() -> None:
    profile = PROFILES[DEFAULT_PROFILE]
    assert [profile.decode_seconds(n) for n in (1, 8, 32)] == [0.0115, 0.0133, 0.022]
    assert profile.step_seconds(1, 8192) == pytest.approx(0.487, abs=0.001)


@pytest.mark.parametrize("profile", PROFILES.values(), ids=list(PROFILES))
def test_steps_never_get_shorter_with_more_sequences(profile: Profile) -> None:
    times = [profile.decode_seconds(n) for n in range(1, 600)]
    assert times == sorted(times)


def test_instant_profile_takes_no_time() -> None:
    assert PROFILES["instant"].step_seconds(256, 8192) == 0
