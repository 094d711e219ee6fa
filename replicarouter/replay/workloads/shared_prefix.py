"""Prompts that share long heads: one for everybody, or one for each of many groups."""

from random import Random

from replicarouter.replay.workloads.base import Plan, Shape, Step, long_tailed

SYSTEM_TOKENS = 4_000
TURNS = 5
MEAN_QUESTION, MEAN_ANSWER = 150, 200
MEAN_THINKING = 8.0

GROUPS = 150
GROUP_TOKENS, GROUP_QUESTION, GROUP_ANSWER = 6_000, 1_200, 1_000
"""As in llm-d's published study of cache-aware routing: 150 groups with these lengths."""

MIXED_GROUPS = 8
REUSED = 0.75
SHORTEST, LONGEST = 1_024, 32_768
MEAN_MIXED_ANSWER = 200


def one_for_all(random: Random) -> Plan:
    """A conversation behind the one system prompt."""
    steps = [
        Step(
            long_tailed(random, MEAN_QUESTION),
            long_tailed(random, MEAN_ANSWER, 0.6, 8),
            random.expovariate(1 / MEAN_THINKING),
        )
        for _ in range(TURNS)
    ]
    return Plan(steps, head=200, head_tokens=SYSTEM_TOKENS)


def grouped(random: Random) -> Plan:
    """One question behind the system prompt of a random group."""
    step = Step(GROUP_QUESTION, GROUP_ANSWER)
    return Plan([step], head=300 + random.randrange(GROUPS), head_tokens=GROUP_TOKENS)


def mixed(random: Random) -> Plan:
    """One prompt of 1K to 32K tokens, evenly spread in the logarithm, whose first three quarters are the
    beginning of its group's text."""
    tokens = round(SHORTEST * (LONGEST / SHORTEST) ** random.random())
    head_tokens = round(tokens * REUSED)
    step = Step(tokens - head_tokens, long_tailed(random, MEAN_MIXED_ANSWER, 0.6, 8))
    return Plan([step], head=500 + random.randrange(MIXED_GROUPS), head_tokens=head_tokens)


SHARED_PREFIX = Shape(
    "shared-prefix",
    "one system prompt of 4,000 tokens for everybody, conversations of 5 turns behind it",
    one_for_all,
    turns=TURNS,
    rate=6.0,
    settles=60.0,
)

PREFIX_GROUPS = Shape(
    "prefix-groups",
    "150 system prompts of 6,000 tokens, one question of 1,200 behind a random one, answers of 1,000",
    grouped,
    turns=1,
    rate=1.1,
    settles=60.0,
)

PREFIX_MIX = Shape(
    "prefix-mix",
    "prompts of 1K to 32K tokens, the first 75 % of each being the text of one of 8 groups",
    mixed,
    turns=1,
    rate=1.9,
    settles=20.0,
)
