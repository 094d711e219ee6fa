"""Which policy a pool goes by."""

from typing import Any

import pytest

from replicarouter.admission.plan import PolicyPlan
from replicarouter.policies import POLICIES
from replicarouter.policies.base import Policy
from replicarouter.protocol.request import Needs
from replicarouter.settings import PolicyOptions
from tests.admission.rig import Stubborn


class Curious(Stubborn):
    needs = Needs.SESSION

    def __init__(self, options: PolicyOptions | None = None) -> None:
        super().__init__()
        self.given = options

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
    assert made.given == PolicyOptions(load_factor=2.0)


def test_no_policy_is_its_own_shadow() -> None:
    several = plan(by_model={"m1": "session"}, shadow="session")
    assert (several.shadow_for("m1"), several.shadow_for("m2")) == (None, "session")
    assert plan().shadow_for("m1") is None


@pytest.mark.parametrize(
    ("options", "others"),
    [
        ({"shadow": "session", "decisions_per_second": 1, "stick_to_api_key": True}, set()),
        ({"session_headers": ["X-A"]}, set()),
        ({"load_factor": 3}, {"session", "prefix-hash"}),
        ({"prefix_index_bytes": 1000}, {"prefix-cache"}),
    ],
)
def test_a_policy_is_another_when_options_change_that_it_goes_by(
    options: dict[str, Any], others: set[str]
) -> None:
    before, after = PolicyPlan("random"), PolicyPlan("random", options=PolicyOptions(**options))
    assert {name for name in POLICIES if not after.makes_as(before, name)} == others


def test_a_policy_of_another_class_is_another() -> None:
    before = plan()
    assert plan().makes_as(before, "session")
    assert not PolicyPlan("session", table={"session": Stubborn}).makes_as(before, "session")


class Watched:
    """Options, and which of them somebody has looked at."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.seen.add(name)
        return getattr(PolicyOptions(), name)


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_goes_by_the_options_that_it_names(name: str) -> None:
    options: Any = Watched()
    POLICIES[name].of(options)
    assert options.seen == POLICIES[name].options


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
