"""What is asked of a fleet: conversations of one or more turns, whatever they come from."""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from xxhash import xxh3_64_intdigest

NOMINAL_TOKEN_SECONDS = 0.02
"""Seconds a generated token is taken to last where turns are put in order and nothing has a duration."""


@dataclass(slots=True, eq=False)
class Turn:
    """One request. `blocks` are the chained hashes of its prompt's blocks, of which the last may be filled
    in part; `final_blocks` those of the whole blocks of prompt and reply, empty when they are not known.

    It comes `delay` seconds after the answer to the turn before, and not before `at` seconds from the
    start. `session` and `head` are the keys that a router would read from it.
    """

    prompt_tokens: int
    output_tokens: int
    blocks: Sequence[int]
    final_blocks: Sequence[int] = ()
    delay: float = 0.0
    at: float = 0.0
    session: int | None = None
    head: int | None = None


@dataclass(slots=True, eq=False)
class Conversation:
    """Turns that wait for each other; the first comes `at` seconds from the start."""

    at: float
    turns: Iterator[Turn]


class Demand(Protocol):
    """A trace or a workload: the same whichever policy serves it.

    `block_tokens` is the size of its blocks. `concurrency` is how many conversations are kept alive, a
    new one beginning when one ends; 0: they come when they come. After `settles` seconds there are about as
    many as there will be, until the last has begun; None: the demand is what it is.
    """

    name: str
    block_tokens: int
    concurrency: int
    settles: float | None

    def conversations(self, seed: int) -> Iterator[Conversation]:
        """All conversations in the order of their beginning, made while they are taken."""


def digest(*numbers: int) -> int:
    """A 64-bit hash of whole numbers, as evenly spread as the hashes of real prompts."""
    return xxh3_64_intdigest(b",".join(b"%d" % number for number in numbers))


def whole_blocks(turn: Turn, block_tokens: int) -> Sequence[int]:
    """The hashes of those prompt blocks that are full: only these can be found in a cache."""
    full = turn.prompt_tokens // block_tokens
    return turn.blocks if len(turn.blocks) <= full else turn.blocks[:full]


def in_order(demand: Demand, seed: int) -> Iterator[Turn]:
    """All turns one after the other, without an engine.

    Of conversations that come when they come, the next turn is the one that would be due first if each
    generated token took `NOMINAL_TOKEN_SECONDS` and nothing else took time. Of those that are kept alive,
    it is one of a random live conversation.
    """
    conversations = demand.conversations(seed)
    if demand.concurrency:
        return _of_live(conversations, demand.concurrency, Random(digest(seed, demand.concurrency)))
    return _by_due_time(conversations)


def _of_live(conversations: Iterator[Conversation], concurrency: int, random: Random) -> Iterator[Turn]:
    live = [one.turns for _, one in zip(range(concurrency), conversations, strict=False)]
    while live:
        place = int(random.random() * len(live))
        turn = next(live[place], None)
        if turn is not None:
            yield turn
            continue
        successor = next(conversations, None)
        if successor is None:
            live[place] = live[-1]
            live.pop()
        else:
            live[place] = successor.turns


def _by_due_time(conversations: Iterator[Conversation]) -> Iterator[Turn]:
    due: list[tuple[float, int, Turn, Iterator[Turn]]] = []
    serial = 0
    coming = next(conversations, None)
    while due or coming is not None:
        if coming is not None and (not due or coming.at <= due[0][0]):
            now, turns, serial = coming.at, coming.turns, serial + 1
            turn = next(turns, None)
            coming = next(conversations, None)
        else:
            now, _, turn, turns = heapq.heappop(due)
        if turn is None:
            continue
        yield turn
        following = next(turns, None)
        if following is not None:
            serial += 1
            answered = now + turn.output_tokens * NOMINAL_TOKEN_SECONDS
            moment = max(answered + following.delay, following.at)
            heapq.heappush(due, (moment, serial, following, turns))
