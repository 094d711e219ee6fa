"""A cache of blocks that holds so many and forgets what was used longest ago."""

from collections import OrderedDict
from collections.abc import Sequence


class BlockLru:
    """Looks up the leading blocks of prompts and takes the prompts in. Of one prompt the last blocks are
    forgotten first, as vLLM does it: what others may share stands in front."""

    __slots__ = ("_blocks", "capacity")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._blocks)

    def __contains__(self, block: int) -> bool:
        return block in self._blocks

    def blocks(self) -> list[int]:
        """All that are held, those first that go first."""
        return list(self._blocks)

    def leading(self, blocks: Sequence[int]) -> int:
        """How many of the first blocks are held."""
        held = self._blocks
        for position, block in enumerate(blocks):
            if block not in held:
                return position
        return len(blocks)

    def insert(self, blocks: Sequence[int]) -> list[int]:
        """Hold these as the latest; returns what had to go."""
        held = self._blocks
        for block in reversed(blocks):
            held[block] = None
            held.move_to_end(block)
        return [held.popitem(last=False)[0] for _ in range(len(held) - self.capacity)]
