"""Which replica gets the next request: one policy a file, one line in `POLICIES`."""

from replicarouter.policies.base import Policy
from replicarouter.policies.least_outstanding import LeastOutstanding
from replicarouter.policies.power_of_two import PowerOfTwo
from replicarouter.policies.prefix_cache import PrefixCache
from replicarouter.policies.prefix_hash import PrefixHash
from replicarouter.policies.random_choice import RandomChoice
from replicarouter.policies.round_robin import RoundRobin
from replicarouter.policies.session import Session

POLICIES: dict[str, type[Policy]] = {
    "round-robin": RoundRobin,
    "least-outstanding": LeastOutstanding,
    "power-of-two": PowerOfTwo,
    "random": RandomChoice,
    "session": Session,
    "prefix-hash": PrefixHash,
    "prefix-cache": PrefixCache,
}
