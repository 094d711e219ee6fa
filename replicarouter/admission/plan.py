"""Which policy each pool goes by, and which one is asked beside it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from replicarouter.policies import POLICIES
from replicarouter.policies.base import Policy
from replicarouter.protocol.request import Needs
from replicarouter.settings import PolicyOptions


@dataclass(frozen=True, slots=True)
class PolicyPlan:
    """The policy of each model that has one of its own, and that of all others, by their names in
    `table`."""

    default: str
    by_model: Mapping[str, str] = field(default_factory=dict)
    options: PolicyOptions = field(default_factory=PolicyOptions)
    table: Mapping[str, type[Policy]] = field(default_factory=lambda: POLICIES)

    def name_for(self, model: str) -> str:
        """The policy of a model's pool."""
        return self.by_model.get(model, self.default)

    def shadow_for(self, model: str) -> str | None:
        """The policy that is asked beside it, which is another one; None for none."""
        shadow = self.options.shadow
        return None if shadow == self.name_for(model) else shadow

    def make(self, name: str) -> Policy:
        """Make a policy for one pool."""
        return self.table[name].of(self.options)

    def told(self, name: str) -> Mapping[str, Any]:
        """What a policy goes by: while it stays the same, so may the policy."""
        return self.options.model_dump(include=set(self.table[name].options))

    def makes_as(self, before: "PolicyPlan", name: str) -> bool:
        """Whether a policy of this name is the same as under the plan before."""
        same = before.table.get(name) is self.table[name]
        return same and before.told(name) == self.told(name)

    @property
    def wants_keys(self) -> bool:
        """Whether some policy has to know more of a request than its endpoint and model."""
        names = {self.default, *self.by_model.values()}
        if self.options.shadow is not None:
            names.add(self.options.shadow)
        return any(self.table[name].needs is not Needs.NOTHING for name in names)
