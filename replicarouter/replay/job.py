"""One request on its way: the sequence that an engine computes, and what the router knows of it."""

from collections import OrderedDict
from collections.abc import Iterator

from replicarouter.fleet.replica import Replica
from replicarouter.protocol.request import InferenceRequest
from replicarouter.replay.demand import Turn, whole_blocks
from replicarouter.replay.fleet import as_request
from replicarouter.simulator.sequences import Sequence


class Job(Sequence):
    """`came` is when it reached the router, `turns` the conversation that goes on after it. `line` is where
    it waits for room, None when it does not; `replica` where it goes or went; `counted` in the figures."""

    __slots__ = ("came", "counted", "line", "replica", "request", "turns")

    def __init__(self, turn: Turn, turns: Iterator[Turn], block_tokens: int, now: float) -> None:
        blocks = whole_blocks(turn, block_tokens)
        super().__init__(
            prompt_tokens=turn.prompt_tokens,
            limit=max(1, turn.output_tokens),
            hashes=blocks,
            final_hashes=turn.final_blocks or None,
        )
        self.turns = turns
        self.came = now
        self.counted = True
        self.request: InferenceRequest = as_request(turn, blocks, block_tokens)
        self.replica: Replica | None = None
        self.line: OrderedDict[Job, None] | None = None
