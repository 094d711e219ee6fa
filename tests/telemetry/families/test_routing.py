"""What policies did and remember, as the page says it."""

from collections.abc import Callable

from tests.scene import a_fleet
from tests.telemetry.conftest import Watched


def test_what_policies_remember_is_told_for_each_model(watched: Watched) -> None:
    assert watched.samples("affinity_memory_entries") == {("m1",): 10}
    assert watched.samples("affinity_memory_bytes") == {("m1",): 2000}
    forgotten = {("m1", "capacity"): 3, ("m1", "bound"): 4}
    assert watched.samples("affinity_forgotten_total") == forgotten


def test_the_policy_of_every_model_is_told(watch: Callable[..., Watched]) -> None:
    watched = watch(a_fleet("a", models=("m1", "m2")))
    assert watched.samples("policy_info") == {("m1", "policy of m1"): 1, ("m2", "policy of m2"): 1}


def test_what_the_policy_and_its_shadow_did_is_told(full: Watched) -> None:
    assert full.samples("shadow_total") == {("random", "hit"): 1}
    assert full.samples("shadow_choices_total") == {("random", "same"): 1}
    assert full.samples("routed_characters_total") == {("random", "a"): 100}
