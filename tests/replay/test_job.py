"""A request on its way."""

from replicarouter.replay.demand import Turn
from replicarouter.replay.job import Job


def test_engine_and_policy_see_the_same_whole_blocks() -> None:
    job = Job(Turn(40, 0, (1, 2, 3), (1, 2, 9)), iter(()), 16, 5.0)
    assert tuple(job.hashes) == tuple(job.request.blocks) == (1, 2)
    assert job.final_hashes == (1, 2, 9)
    assert (job.came, job.prompt_tokens, job.limit) == (5.0, 40, 1)


def test_a_reply_that_is_not_known_is_not_cached() -> None:
    assert Job(Turn(40, 7, (1, 2)), iter(()), 16, 0.0).final_hashes is None
