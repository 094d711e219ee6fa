"""Several workers in place of one: each has a policy of its own, and hears late what the others know."""

from collections import deque
from collections.abc import Mapping, Sequence
from random import Random

from replicarouter.fleet.replica import Replica
from replicarouter.policies.base import Ending, Figures, Forgetful, Policy, Remembered, View, Wait
from replicarouter.policies.news import Item
from replicarouter.protocol.request import InferenceRequest

NEWS_DELAY = 0.02
"""Seconds between two sendings of news in the router."""


class Workers(Forgetful):
    """The policies of one pool, as one. Requests are dealt to them at random, whichever conversation they
    belong to: clients that keep their connections meet the same worker more often. What is outstanding all
    of them see at once, as in the router; all else they hear `delay` seconds later, or never if that is
    infinite."""

    learns = True

    def __init__(self, policies: Sequence[Policy], replicas: int, delay: float, random: Random) -> None:
        self._policies = policies
        self._delay = delay
        self._random = random
        self._dealt: dict[InferenceRequest, int] = {}
        self._on_the_way: deque[tuple[float, int, Sequence[Item]]] = deque()
        self._members: Mapping[str, Replica] = {}
        self._seen: Sequence[Replica] = ()
        for number, policy in enumerate(policies):
            policy.share(number * replicas // len(policies))

    def pick(self, request: InferenceRequest, view: View) -> Replica | Wait:
        """Ask the worker that has the request, which is the same until it ends."""
        if view.replicas is not self._seen:
            self._seen = view.replicas
            self._members = {replica.name: replica for replica in view.replicas}
        self._deliver(view.now)
        return self._policy_of(request).pick(request, view)

    def explain(self, request: InferenceRequest, view: View) -> Figures:
        """What the worker that has it compares."""
        return self._policy_of(request).explain(request, view)

    def sent(self, request: InferenceRequest, replica: Replica, now: float) -> None:
        """Tell its worker."""
        self._deliver(now)
        self._policy_of(request).sent(request, replica, now)
        self._collect(request, now)

    def began(self, request: InferenceRequest, replica: Replica, now: float) -> None:
        """Tell its worker."""
        self._deliver(now)
        self._policy_of(request).began(request, replica, now)
        self._collect(request, now)

    def finished(self, request: InferenceRequest, replica: Replica, ending: Ending, now: float) -> None:
        """Tell its worker."""
        self._deliver(now)
        self._policy_of(request).finished(request, replica, ending, now)
        self._collect(request, now)
        del self._dealt[request]

    def remembered(self) -> Remembered:
        """What all of them remember."""
        whole = Remembered()
        for policy in self._policies:
            whole = whole.plus(policy.remembered())
        return whole

    def _policy_of(self, request: InferenceRequest) -> Policy:
        worker = self._dealt.get(request)
        if worker is None:
            worker = self._dealt[request] = int(self._random.random() * len(self._policies))
        return self._policies[worker]

    def _collect(self, request: InferenceRequest, now: float) -> None:
        news = self._policy_of(request).news()
        if news:
            self._on_the_way.append((now + self._delay, self._dealt[request], news))

    def _deliver(self, now: float) -> None:
        while self._on_the_way and self._on_the_way[0][0] <= now:
            _, sender, news = self._on_the_way.popleft()
            for number, policy in enumerate(self._policies):
                if number != sender:
                    policy.hear(sender, news, self._members, now)
