"""A prompt that grows: a head that others may share, then a conversation's own messages and replies."""

from collections.abc import Sequence

from replicarouter.replay.demand import digest


def head_blocks(key: int, tokens: int, block_tokens: int) -> list[int]:
    """The hashes of the whole blocks of a text of so many tokens that is known by `key`."""
    return [digest(key, position) for position in range(tokens // block_tokens)]


class GrowingPrompt:
    """The prompt of one conversation, known by `serial`. It begins with `head_tokens` tokens, whose whole
    blocks are `head`; nobody else has what follows."""

    __slots__ = ("_blocks", "_key", "block_tokens", "tokens")

    def __init__(
        self, serial: int, block_tokens: int, head: Sequence[int] = (), head_tokens: int = 0
    ) -> None:
        self._key = digest(serial, -1)
        self._blocks = list(head)
        self.block_tokens = block_tokens
        self.tokens = 0
        self.grow(max(head_tokens, len(head) * block_tokens))

    def grow(self, tokens: int) -> None:
        """Append `tokens` of this conversation's own."""
        self.tokens += tokens
        blocks, key = self._blocks, self._key
        for position in range(len(blocks), self.tokens // self.block_tokens):
            blocks.append(digest(key, position))

    def begin(self, blocks: Sequence[int]) -> None:
        """Take `blocks` for the first of its blocks; nothing may be in it yet."""
        self._blocks = list(blocks)
        self.tokens = len(blocks) * self.block_tokens

    def blocks(self) -> tuple[int, ...]:
        """The hashes of its whole blocks so far."""
        return tuple(self._blocks)
