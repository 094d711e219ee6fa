"""What each replica of a pool has yet to compute, in prompt tokens, and how much it was given lately."""

MEMORY = 8
"""Requests a replica after which what was given before weighs half."""

LATELY = 0.05
"""What a token given lately weighs against one that is still to be computed: enough to spread the work of
one client who sends request after request, and next to nothing where there is a real backlog."""


class Backlog:
    """One number for each slot of the index: tokens still to be computed there, plus a little for those it
    was given lately."""

    __slots__ = ("_lately", "_members", "_requests", "waiting", "weights")

    def __init__(self) -> None:
        self.weights: list[float] = []
        """By slot: what a newcomer queues behind, in tokens."""
        self.waiting: list[float] = []
        """By slot: tokens that were sent there and are not computed yet."""
        self._lately: list[float] = []
        self._requests = 0
        self._members = 0

    def open(self, slot: int) -> None:
        """A replica has come."""
        while len(self.weights) <= slot:
            self.weights.append(0.0)
            self.waiting.append(0.0)
            self._lately.append(0.0)
        # As if it had been given as much as the others: it is not to make up for what it missed.
        known = [given for given in self._lately if given]
        given = sum(known) / len(known) if known else 0.0
        self.waiting[slot] = 0.0
        self._lately[slot] = self.weights[slot] = given
        self._members += 1

    def close(self, slot: int) -> None:
        """A replica has gone."""
        self.waiting[slot] = self._lately[slot] = self.weights[slot] = 0.0
        self._members -= 1

    def add(self, slot: int, tokens: float) -> None:
        """So many tokens are to be computed there."""
        self.waiting[slot] += tokens
        self._lately[slot] += LATELY * tokens
        self.weights[slot] += (1 + LATELY) * tokens
        self._requests += 1
        if self._requests >= MEMORY * self._members:
            self._requests = 0
            self._lately = [given / 2 for given in self._lately]
            self.weights = [
                waiting + given for waiting, given in zip(self.waiting, self._lately, strict=True)
            ]

    def done(self, slot: int, tokens: float) -> None:
        """So many tokens have been computed, or never will be."""
        left = max(0.0, self.waiting[slot] - tokens)
        self.waiting[slot] = left
        self.weights[slot] = left + self._lately[slot]
