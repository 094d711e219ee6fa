"""People who chat: a few turns each, with time to read and to type between them."""

from random import Random

from replicarouter.replay.workloads.base import Plan, Shape, Step, long_tailed

SYSTEM_TOKENS = 384
MEAN_TURNS = 6.0
MOST_TURNS = 20
MEAN_MESSAGE, MEAN_REPLY = 120, 250
MEAN_THINKING = 12.0
"""Seconds between a reply and the next message: time to read 250 tokens and to type a sentence."""


def draw(random: Random) -> Plan:
    """A geometric number of turns; all share one short system prompt."""
    turns = 1
    while turns < MOST_TURNS and random.random() > 1 / MEAN_TURNS:
        turns += 1
    steps = [
        Step(
            long_tailed(random, MEAN_MESSAGE),
            long_tailed(random, MEAN_REPLY, 0.6, 8),
            random.expovariate(1 / MEAN_THINKING),
        )
        for _ in range(turns)
    ]
    return Plan(steps, head=1, head_tokens=SYSTEM_TOKENS)


CHAT = Shape(
    "chat",
    "people who chat: 6 turns on the average, 12 s to read and type, a short common system prompt",
    draw,
    turns=MEAN_TURNS,
    rate=5.5,
    settles=100.0,
    requests=20_000,
)
