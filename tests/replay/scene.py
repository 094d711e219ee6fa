"""Small demand and fleets for tests of the replay."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from replicarouter.fleet.replica import Replica
from replicarouter.policies.base import View
from replicarouter.protocol.request import InferenceRequest
from replicarouter.replay.demand import Conversation, Turn
from replicarouter.replay.fleet import ReplayFleet, as_request

BLOCK = 16


@dataclass
class Script:
    """Demand as written down: for each conversation its beginning and its turns."""

    script: Sequence[tuple[float, Sequence[Turn]]]
    name: str = "script"
    block_tokens: int = BLOCK
    concurrency: int = 0
    settles: float | None = None
    taken: list[float] = field(default_factory=list)

    def conversations(self, seed: int) -> Iterator[Conversation]:
        for at, turns in self.script:
            self.taken.append(at)
            yield Conversation(at, iter(turns))


def turn(*blocks: int, output: int = 10, delay: float = 0.0, session: int | None = None) -> Turn:
    """A prompt of exactly these blocks."""
    return Turn(len(blocks) * BLOCK, output, blocks, delay=delay, session=session, head=session)


def ask(*blocks: int) -> InferenceRequest:
    """The request that a policy sees of such a turn."""
    return as_request(turn(*blocks), blocks, BLOCK)


def view_of(fleet: ReplayFleet, candidates: Sequence[Replica] | None = None) -> View:
    return View(fleet.replicas, candidates or fleet.replicas, 100.0, Random(7))
