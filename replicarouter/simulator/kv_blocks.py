"""The KV cache as a number of blocks. A block belongs to one running sequence or is free."""


class KvBlocks:
    """Counts blocks of `block_size` tokens; takes all that is asked for or nothing."""

    __slots__ = ("block_size", "free", "total")

    def __init__(self, total: int, block_size: int) -> None:
        self.total = total
        self.block_size = block_size
        self.free = total

    def needed(self, tokens: int) -> int:
        """Blocks that `tokens` fill, the last one perhaps in part."""
        return -(-tokens // self.block_size)

    def take(self, blocks: int) -> bool:
        """Take `blocks` if as many are free."""
        if blocks > self.free:
            return False
        self.free -= blocks
        return True

    def give_back(self, blocks: int) -> None:
        """Free `blocks` taken before."""
        self.free += blocks

    @property
    def usage(self) -> float:
        """Used share, 0 to 1."""
        return 1 - self.free / self.total
