"""Which policy a pool goes by."""

from typing import Any

import pytest

from replicarouter.admission.plan import PolicyPlan
from replicarouter.policies.base import Policy
from replicarouter.protocol.request import Needs
from replicarouter.settings import PolicyOptions
from tests.admission.rig import Stubborn


class Curious(Stubborn):
    needs = Needs.SESSION

    def __init__(self, options: PolicyOptions | None = None) -> None:
        super().__init__()
        self.options = options

    @classmethod
    def of(cls, options: PolicyOptions) -> "Curious":
        return cls(options)


TABLE: dict[str, type[Policy]] = {"random": Stubborn, "session": Curious}


def plan(default: str = "random", by_model: dict[str, str] | None = None, **options: Any) -> PolicyPlan:
    return PolicyPlan(default, by_model or {}, PolicyOptions(**options), TABLE)


def test_a_model_has_its_own_policy_or_the_one_of_all() -> None:
    several = plan(by_model={"m1": "session"})
    assert (several.name_for("m1"), several.name_for("m2")) == ("session", "random")


def test_a_policy_is_made_by_its_options() -> None:
    made = plan(load_factor=2.0).make("session")
    assert isinstance(made, Curious)
    assert made.options == PolicyOptions(load_factor=2.0)


def test_no_policy_is_its_own_shadow() -> None:
    several = plan(by_model={"m1": "session"}, shadow="session")
    assert (several.shadow_for("m1"), several.shadow_for("m2")) == (None, "session")
    assert plan().shadow_for("m1") is None


@pytest.mark.parametrize(
    ("options", "same"),
    [
        ({"shadow": "session", "decisions_per_second": 1, "stick_to_api_key": True}, True),
        ({"session_headers": ["X-A"]}, True),
        ({"load_factor": 3}, False),
        ({"prefix_index_bytes": 1000}, False),
    ],
)
def test_policies_are_told_some_of_the_options(options: dict[str, Any], same: bool) -> None:
    assert (plan(**options).told == plan().told) is same


@pytest.mark.parametrize(
    ("wanted", "keys"),
    [
        (plan(), False),
        (plan("session"), True),
        (plan(by_model={"m9": "session"}), True),
        (plan(shadow="session"), True),
    ],
)
def test_keys_are_wanted_when_any_policy_needs_them(wanted: PolicyPlan, keys: bool) -> None:
    assert wanted.wants_keys is keys
