"""Sessions kept alive behind one head for everybody: the case in which sticky rules make a hot spot."""

from random import Random

from replicarouter.replay.workloads.base import Plan, Shape, Step

TURNS = 10
ADDED, REPLY = 192, 128
"""A turn adds 320 tokens to the next prompt."""

SHORT_HEAD, LONG_HEAD = 128, 3_968
LIVE = 25
"""For each replica: 200 on eight."""


def _session(head_tokens: int) -> Plan:
    first = Step(ADDED + REPLY, REPLY)
    return Plan([first, *(Step(ADDED, REPLY) for _ in range(TURNS - 1))], head=700, head_tokens=head_tokens)


def short_headed(random: Random) -> Plan:  # noqa: ARG001
    """A session behind 128 common tokens."""
    return _session(SHORT_HEAD)


def long_headed(random: Random) -> Plan:  # noqa: ARG001
    """A session behind 3,968 common tokens."""
    return _session(LONG_HEAD)


def _shape(name: str, head: int) -> Shape:
    return Shape(
        name,
        f"25 sessions alive for each replica, 10 turns of 320 tokens behind {head:,} common tokens",
        long_headed if head == LONG_HEAD else short_headed,
        turns=TURNS,
        concurrency=LIVE,
        settles=0.0,
        requests=6_000,
    )


LONG_HEADED = _shape("live-long-head", LONG_HEAD)
SHORT_HEADED = _shape("live-short-head", SHORT_HEAD)
