"""What does it cost that workers tell each other what they have learned? Microseconds of each request.

    python -m benchmarks.news_cost
    python -m benchmarks.news_cost --rounds 31

For each policy that learns: telling it of a request (`sent`, `began`, `finished`) as the only worker, what is
added to that by collecting news, and what another worker spends on hearing them, packing and unpacking
included. A request is a turn of one of many conversations, with a prompt of so many blocks of 512 characters.
Medians of rounds in which all of them take turns; of the machine's absolute times nothing is to be concluded.
"""

import argparse
import pickle
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from replicarouter.fleet.ledger import Ledger
from replicarouter.fleet.replica import Replica
from replicarouter.policies import POLICIES
from replicarouter.policies.base import Ending, Policy, View
from replicarouter.policies.news import Item
from replicarouter.protocol.endpoints import Endpoints
from replicarouter.protocol.request import InferenceRequest
from replicarouter.settings import PolicyOptions, ReplicaSettings

REPLICAS = 8
PROMPTS = (31, 250)
"""Blocks: 16 and 128 kB."""

REQUESTS = 512
PER_BATCH = 32
"""Requests whose news are packed together: 1,600 a second, of which a batch is made every 20 ms."""

NOW = 1000.0
OK = Ending("ok", 4000, 2000, 100)


@dataclass(frozen=True, slots=True)
class Costs:
    """Microseconds of one request."""

    alone: float
    collecting: float
    hearing: float
    bytes: float


def main() -> int:
    """Measure and print the table."""
    arguments = parse()
    print(f"{'policy':14}{'blocks':>8}{'told of':>10}{'collecting':>12}{'hearing':>10}{'bytes':>8}")
    for name, policy in POLICIES.items():
        for blocks in PROMPTS if policy.learns else ():
            costs = measure(name, blocks, arguments.rounds)
            print(
                f"{name:14}{blocks:8}{costs.alone:10.2f}{costs.collecting:12.2f}{costs.hearing:10.2f}"
                f"{costs.bytes:8.0f}",
                flush=True,
            )
    return 0


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=21, help="of which the medians are shown")
    return parser.parse_args()


def measure(name: str, blocks: int, rounds: int) -> Costs:
    """The medians over the rounds, each with policies of its own."""
    alone, shared, hearing, size = [], [], [], 0
    for number in range(rounds):
        scene = Scene(name, blocks, seed=number)
        alone.append(timed_tell(scene, shared=False)[0])
        taken, batches = timed_tell(scene, shared=True)
        shared.append(taken)
        size = sum(map(len, batches))
        hearing.append(timed_hear(scene, batches))
    pairs = [with_news - without for with_news, without in zip(shared, alone, strict=True)]
    unit = 1e6 / REQUESTS
    return Costs(
        statistics.median(alone) * unit,
        statistics.median(pairs) * unit,
        statistics.median(hearing) * unit,
        size / REQUESTS,
    )


class Scene:
    """A pool and the turns of conversations, half of a prompt being what came before."""

    def __init__(self, name: str, blocks: int, seed: int) -> None:
        random, ledger = Random(seed), Ledger()
        self.name = name
        self.replicas = [a_replica(f"replica-{number}", ledger) for number in range(REPLICAS)]
        self.requests = []
        for _ in range(REQUESTS // 2):
            session, text = random.getrandbits(64), [random.getrandbits(64) for _ in range(blocks)]
            for length in (blocks // 2, blocks):
                self.requests.append(a_request(session, text[:length]))
        self.chosen = self._choose(random)

    def a_policy(self) -> Policy:
        """One that has seen nothing yet."""
        return POLICIES[self.name].of(PolicyOptions())

    def _choose(self, random: Random) -> list[Replica]:
        """Where they go: a rehearsal, so that choosing is not measured."""
        policy, chosen = self.a_policy(), []
        view = View(self.replicas, self.replicas, NOW, random)
        for request in self.requests:
            choice = policy.pick(request, view)
            assert isinstance(choice, Replica)
            policy.sent(request, choice, NOW)
            policy.finished(request, choice, OK, NOW)
            chosen.append(choice)
        return chosen


def timed_tell(scene: Scene, *, shared: bool) -> tuple[float, list[bytes]]:
    """Seconds that it takes to tell a policy of all requests; and its news, packed."""
    policy, batches = scene.a_policy(), []
    if shared:
        policy.share(0)
    view = View(scene.replicas, scene.replicas, NOW, Random(1))
    policy.pick(scene.requests[0], view)
    pairs = list(zip(scene.requests, scene.chosen, strict=True))
    started = time.process_time()
    for at in range(0, len(pairs), PER_BATCH):
        for request, replica in pairs[at : at + PER_BATCH]:
            policy.sent(request, replica, NOW)
            policy.began(request, replica, NOW)
            policy.finished(request, replica, OK, NOW)
        if shared:
            batches.append(pickle.dumps(policy.news(), pickle.HIGHEST_PROTOCOL))
    return time.process_time() - started, batches


def timed_hear(scene: Scene, batches: Sequence[bytes]) -> float:
    """Seconds that another worker takes to hear them."""
    policy = scene.a_policy()
    policy.share(0)
    members = {replica.name: replica for replica in scene.replicas}
    started = time.process_time()
    for batch in batches:
        news: Sequence[Item] = pickle.loads(batch)
        policy.hear(1, news, members, NOW)
    return time.process_time() - started


def a_replica(name: str, ledger: Ledger) -> Replica:
    """One of the pool."""
    settings = ReplicaSettings.model_validate({"url": f"http://{name}.invalid", "name": name})
    return Replica.join(settings, ledger, 0)


def a_request(session: int, blocks: list[int]) -> InferenceRequest:
    """A turn whose keys have been read."""
    endpoint = Endpoints().find("/v1/chat/completions")
    assert endpoint is not None
    request = InferenceRequest(endpoint, "m", stream=True, session=session, head=session, blocks=blocks)
    request.characters = len(blocks) * request.block_characters
    return request


if __name__ == "__main__":
    raise SystemExit(main())
