"""Sessions that are kept alive."""

from random import Random

import pytest

from replicarouter.replay.workloads.base import Shape, Workload, WorkloadOptions
from replicarouter.replay.workloads.live_sessions import LONG_HEADED, SHORT_HEADED


@pytest.mark.parametrize(("shape", "head"), [(LONG_HEADED, 3968), (SHORT_HEADED, 128)])
def test_each_turn_adds_320_tokens_behind_the_common_head(shape: Shape, head: int) -> None:
    workload = Workload(shape, WorkloadOptions(replicas=8))
    conversations = list(workload.conversations(1))
    assert (len(conversations), workload.concurrency, workload.block_tokens) == (600, 200, 64)
    prompts = [turn.prompt_tokens for turn in conversations[0].turns]
    assert prompts == [head + 320 * turn for turn in range(1, 11)]
    assert shape.draw(Random(1)) == shape.draw(Random(2))
