"""What policies tell each other: those of one pool, of which every worker has one."""

Item = tuple[int | float | str | bytes, ...]
"""What it says, about what, and plain values that any encoding can carry. Replicas are named."""

MOST_ITEMS = 16_384
MOST_BYTES = 8 * 2**20
"""What may be collected until somebody sends it: far more than comes together between two sendings."""

ITEM_BYTES = 64
"""What an item counts for beside the hashes in it."""


PLACED, SENT, COMPUTED, ENDED, FAILED, MISSED = range(6)
"""What an item says, which is its first value; the others are:

- `PLACED key name displaced at`: a key has its place at a replica since then.
- `SENT number name blocks characters tokens begins`: a replica was given a prompt with these blocks (eight
  bytes each) of so many characters, of which it has to compute so many tokens. `begins` is when that should
  be done; 0 where `COMPUTED` will tell.
- `COMPUTED number`: that prompt has been computed.
- `ENDED number`: that request has ended.
- `FAILED number`: it has ended, and its replica has not computed its prompt.
- `MISSED`: there was more than could be kept. What was under way by what was told before may have ended.
"""


class Notebook:
    """News to be sent, in their order. It is bounded: where nobody takes them, all of them are forgotten at
    once, and that this has happened is news."""

    __slots__ = ("_bytes", "_items")

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._items)

    def note(self, item: Item, extra: int = 0) -> None:
        """Keep an item with so many bytes of hashes in it."""
        self._bytes += ITEM_BYTES + extra
        if self._bytes > MOST_BYTES or len(self._items) >= MOST_ITEMS:
            self._items = [(MISSED,)]
            self._bytes = ITEM_BYTES
        self._items.append(item)

    def take(self) -> list[Item]:
        """All that were noted since this was asked last."""
        items, self._items = self._items, []
        self._bytes = 0
        return items
