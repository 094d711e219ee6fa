"""What does a choice cost? Microseconds of each policy's `pick`, among 8 and among 1,000 replicas.

    python -m benchmarks.policy_cost
    python -m benchmarks.policy_cost --only session --only prefix-hash --repetitions 31

Rows and cautions: benchmarks/README.md.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from random import Random
from typing import Any

from multidict import CIMultiDict, CIMultiDictProxy

from replicarouter.affinity.reader import KeyReader
from replicarouter.fleet.ledger import OUTSTANDING, Ledger
from replicarouter.fleet.replica import Replica
from replicarouter.policies import POLICIES
from replicarouter.policies.base import View
from replicarouter.protocol.endpoints import Endpoints
from replicarouter.protocol.request import InferenceRequest, Needs
from replicarouter.settings import PolicyOptions, ReplicaSettings

SIZES = (8, 1000)
NOW = 1000.0
CONVERSATIONS = 256
SYSTEM_CHARACTERS, QUESTION_CHARACTERS = 2_000, 14_000
"""A prompt of about 4,000 tokens, of which all conversations share an eighth."""

PICK, PICK_BY_BLOCKS, READ_AND_PICK = (10.0, 150.0), (15.0, 150.0), (40.0, 190.0)
"""Microseconds that it may take among 8 and among 1,000 replicas."""

ROUND = 0.03
"""Seconds that one of the repetitions takes at least."""

Call = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Case:
    """How the pool of one row is: `failing` replicas have failed lately; `few_at_a_time` leaves out others
    each time, as happens in a pool whose replicas are full now and then; `reading` reads the keys from the
    body each time."""

    about: str
    budget: tuple[float, float]
    weights: tuple[float, ...] = (1.0,)
    failing: int = 0
    few_at_a_time: bool = False
    reading: bool = False


def main() -> int:
    """Measure, print the table, and return 1 if anything took longer than it may."""
    arguments = parse()
    print(f"{'policy':20}{'replicas and requests':40}" + "".join(f"{size:>9} µs" for size in SIZES))
    slow = False
    for name, case in rows(arguments.only):
        line = f"{name:20}{case.about:40}"
        for size, budget in zip(SIZES, case.budget, strict=True):
            taken = measure(prepare(name, size, case), arguments.repetitions)
            slow = slow or taken > budget
            line += f"{taken:>10.1f} {'!' if taken > budget else ' '}"
        print(line, flush=True)
    print("Those with ! take longer than they may." if slow else "All take no longer than they may.")
    return 1 if slow else 0


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=15, help="of which the median is shown")
    parser.add_argument("--only", action="append", choices=POLICIES, help="a policy; may be given again")
    return parser.parse_args()


def rows(only: Sequence[str] | None) -> Iterator[tuple[str, Case]]:
    """All rows of the table."""
    for name in only or POLICIES:
        needs = POLICIES[name].needs
        budget = PICK_BY_BLOCKS if needs & Needs.BLOCKS else PICK
        plain = Case("all of one weight", budget)
        yield name, plain
        yield name, replace(plain, about="all, of three weights", weights=(1.0, 2.0, 4.0))
        yield name, replace(plain, about="all, five have failed lately", failing=5)
        yield name, replace(plain, about="others are left out each time", few_at_a_time=True)
        if needs & ~Needs.SESSION:
            yield name, replace(plain, about="all; keys read from 16 kB", budget=READ_AND_PICK, reading=True)


def measure(call: Call, repetitions: int) -> float:
    """The median over the repetitions, in microseconds for one call."""
    count, taken = 8, 0.0
    while taken < ROUND:
        count *= 2
        taken = timed(call, count)
    return statistics.median(timed(call, count) / count for _ in range(repetitions)) * 1e6


def timed(call: Call, count: int) -> float:
    """Seconds of this process that so many calls take: those of others do not count."""
    started = time.process_time()
    for _ in range(count):
        call()
    return time.process_time() - started


def prepare(name: str, size: int, case: Case) -> Call:
    """What one row measures: a choice for the next turn of one of many conversations, all of which have
    been placed before."""
    random = Random(size)
    replicas = a_pool(size, case, random)
    views = cycle([View(replicas, some, NOW, random) for some in candidates_of(replicas, case)])
    policy, needs = POLICIES[name].of(PolicyOptions()), POLICIES[name].needs
    reader = KeyReader(PolicyOptions().session_headers, stick_to_api_key=False)
    turns = [a_turn(number) for number in range(CONVERSATIONS)]
    for number, (turn, fields) in enumerate(turns):
        reader.read(turn, headers_of(number, needs), needs)
        chosen = policy.pick(turn, next(views))
        if isinstance(chosen, Replica):
            policy.sent(turn, chosen, NOW)
            policy.began(turn, chosen, NOW)
        turn.fields = fields
    pick, again = policy.pick, cycle(turns)
    if not case.reading:
        return lambda: pick(next(again)[0], next(views))

    def read_and_pick() -> object:
        turn, fields = next(again)
        turn.fields = fields
        reader.read(turn, NO_HEADERS, needs)
        return pick(turn, next(views))

    return read_and_pick


NO_HEADERS: CIMultiDictProxy[str] = CIMultiDictProxy(CIMultiDict())


def headers_of(number: int, needs: Needs) -> CIMultiDictProxy[str]:
    """The header fields of a conversation: a session key for whom nothing else would do."""
    if needs != Needs.SESSION:
        return NO_HEADERS
    return CIMultiDictProxy(CIMultiDict({"X-Session-Id": f"session-{number}"}))


def a_pool(size: int, case: Case, random: Random) -> list[Replica]:
    """Replicas that have about ten requests each."""
    ledger = Ledger()
    replicas = []
    for number in range(size):
        name, weight = f"replica-{number}", case.weights[number % len(case.weights)]
        settings = ReplicaSettings.model_validate(
            {"url": f"http://{name}.invalid", "name": name, "weight": weight}
        )
        replica = Replica.join(settings, ledger, 0)
        replica.cells[replica.row + OUTSTANDING] = round(weight * random.randint(9, 11))
        replicas.append(replica)
    for replica in replicas[: case.failing]:
        replica.failed(NOW)
    return replicas


def candidates_of(replicas: list[Replica], case: Case) -> list[list[Replica]]:
    """The lists of candidates that come in turn."""
    if not case.few_at_a_time:
        return [replicas]
    return [[one for number, one in enumerate(replicas) if number % 8 != out] for out in range(8)]


def a_turn(number: int) -> tuple[InferenceRequest, Mapping[str, Any]]:
    """The first turn of a conversation, and its body."""
    endpoint = Endpoints().find("/v1/chat/completions")
    assert endpoint is not None
    words = Random(number)
    question = " ".join(str(words.getrandbits(24)) for _ in range(QUESTION_CHARACTERS // 8))
    fields = {
        "model": "m",
        "messages": [
            {"role": "system", "content": "You are helpful. " * (SYSTEM_CHARACTERS // 17)},
            {"role": "user", "content": question[:QUESTION_CHARACTERS]},
        ],
    }
    return InferenceRequest(endpoint, "m", fields=fields), fields


if __name__ == "__main__":
    raise SystemExit(main())
