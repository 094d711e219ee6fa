"""The first waiters of every worker's queue, for those who have room to give: whose turn it is over all."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from replicarouter.commons.callers import NOBODY
from replicarouter.commons.layout import (
    ANY,
    CALLER,
    CALLER_HELD,
    CALLER_TURN,
    HEAD,
    HEAD_BOOK,
    HEAD_CALLER,
    HEAD_HELD,
    HEAD_MODEL,
    HEAD_ONLY,
    HEAD_RANK,
    HEAD_SINCE,
    HEAD_TRIED,
    HEAD_TURN,
    HEAD_WEIGHT,
    HEADS,
    MOST_TRIED,
)
from replicarouter.commons.place import Place


class Head(NamedTuple):
    """A request at the front of a queue. `model` is a hash of the name (not 0), `rank` 0 the most urgent; the
    row `only` alone will do unless it is `ANY`, and those of `tried` will not.

    `caller` is a place in the table of callers; where that is `NOBODY`, `held` and `turn` say what it holds,
    else they are looked up when it matters. `seat` is the worker where it waits, since `since` seconds.
    """

    model: int
    rank: int
    only: int
    caller: int
    book: int
    held: int
    weight: float
    turn: float
    since: float
    tried: tuple[int, ...] = ()
    seat: int = -1

    def may_use(self, row: int) -> bool:
        """Whether the replica of this row will do."""
        return self.only in {ANY, row} and row not in self.tried


Claim = tuple[float, float, int, Head]
"""Of a head: its caller's turn, since when it waits, what its caller holds."""


def write(place: Place, heads: Sequence[Head]) -> None:
    """Tell the others of these. To be called under the lock."""
    cells, floats = place.heads, place.head_floats
    for index, head in enumerate(heads):
        at = index * HEAD
        cells[at + HEAD_MODEL] = head.model
        cells[at + HEAD_RANK] = head.rank
        cells[at + HEAD_ONLY] = head.only
        cells[at + HEAD_CALLER] = head.caller
        cells[at + HEAD_BOOK] = head.book
        cells[at + HEAD_HELD] = head.held
        floats[at + HEAD_WEIGHT] = head.weight
        floats[at + HEAD_TURN] = head.turn
        floats[at + HEAD_SINCE] = head.since
        tried = head.tried[:MOST_TRIED]
        for offset in range(MOST_TRIED):
            cells[at + HEAD_TRIED + offset] = tried[offset] if offset < len(tried) else ANY
    place.gauges[HEADS] = len(heads)


def decline(place: Place, models: Collection[int], row: int) -> None:
    """None of this worker's heads for these models can use the room at `row` for now, for whatever reason:
    let the others have it. To be called under the lock."""
    cells = place.heads
    for at in _starts(place):
        head = read_one(place, at)
        if head.model not in models or not head.may_use(row):
            continue
        if len(head.tried) < MOST_TRIED:
            cells[at + HEAD_TRIED + len(head.tried)] = row
        else:
            cells[at + HEAD_MODEL] = 0


def read(place: Place) -> Iterator[Head]:
    """The heads that a worker tells of."""
    for at in _starts(place):
        yield read_one(place, at)


def read_one(place: Place, at: int) -> Head:
    """The head whose cells begin at `at`."""
    cells = place.heads[at : at + HEAD].tolist()
    weight, turn, since = place.head_floats[at + HEAD_WEIGHT : at + HEAD_TRIED].tolist()
    tried = tuple([row for row in cells[HEAD_TRIED:] if row != ANY])
    model, rank, only, caller, book, held = cells[:HEAD_WEIGHT]
    return Head(model, rank, only, caller, book, held, weight, turn, since, tried, place.index)


def first_of(heads: Iterable[Head], held: "memoryview[int]", turns: "memoryview[float]") -> Head | None:
    """Whose turn it is among these: the most urgent, then as is fair between their callers, then the oldest.

    `held` and `turns` are the table of callers.
    """
    found = list(heads)
    if len(found) < 2:
        return found[0] if found else None
    rank = min([head.rank for head in found])
    books: dict[int, list[Claim]] = {}
    for head in found:
        if head.rank == rank:
            at = head.caller * CALLER
            claim = (head.turn, head.since, head.held, head)
            if head.caller != NOBODY:
                claim = (turns[at + CALLER_TURN], head.since, held[at + CALLER_HELD], head)
            books.setdefault(head.book, []).append(claim)
    return min((_fairest(each) for each in books.values()), key=lambda head: head.since)


def _fairest(claims: Sequence[Claim]) -> Head:
    level = min([(held + 1) / head.weight for _, _, held, head in claims])
    # None is left where the quotients are too large for a float: nothing is said of them.
    below = [claim for claim in claims if claim[2] / claim[3].weight < level] or claims
    return min(below)[3]


def _starts(place: Place) -> range:
    return range(0, place.gauges[HEADS] * HEAD, HEAD)
