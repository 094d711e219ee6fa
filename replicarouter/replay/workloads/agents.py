"""Agents in tool loops: many turns, little time between them, large outputs of tools to read."""

from random import Random

from replicarouter.replay.workloads.base import Plan, Shape, Step, long_tailed

SYSTEM_TOKENS = 6_144
"""Instructions and tool definitions that all agents of one kind share."""

KINDS = 4
FEWEST_TURNS, MOST_TURNS = 8, 40
TASK_TOKENS = 800
MEAN_TOOL_OUTPUT, MEAN_REPLY = 900, 120
MEAN_TOOL_SECONDS = 2.0


def draw(random: Random) -> Plan:
    """One task: its description, then tool outputs until the agent is done."""
    turns = random.randint(FEWEST_TURNS, MOST_TURNS)
    steps = [
        Step(
            long_tailed(random, MEAN_TOOL_OUTPUT if number else TASK_TOKENS, 1.0, 10),
            long_tailed(random, MEAN_REPLY, 0.7, 8),
            random.expovariate(1 / MEAN_TOOL_SECONDS),
        )
        for number in range(turns)
    ]
    return Plan(steps, head=100 + random.randrange(KINDS), head_tokens=SYSTEM_TOKENS)


AGENTS = Shape(
    "agents",
    "agents in tool loops: 8 to 40 turns, 2 s between them, 900 tokens of tool output each",
    draw,
    turns=(FEWEST_TURNS + MOST_TURNS) / 2,
    rate=4.0,
    settles=100.0,
)
