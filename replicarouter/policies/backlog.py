"""What each replica of a pool has yet to compute, and how much it was given lately."""

MEMORY = 8
"""Requests a replica after which what was given before weighs half."""

LATELY = 0.05
"""What a token given lately weighs against one that is still to be computed: enough to spread the work of
one client who sends request after request, and next to nothing where there is a real backlog."""


class Backlog:
    """For each slot of the index, prompt tokens that are still to be computed there, in `parts` of one
    request each; and as one number what a newcomer queues behind."""

    __slots__ = ("_lately", "_members", "_parts", "_requests", "_scale", "waiting", "weights")

    def __init__(self) -> None:
        self.weights: list[float] = []
        """By slot: what is waiting there, and a little for what it was given lately, times the scale."""
        self.waiting: list[float] = []
        """By slot: tokens that were sent there and are not computed yet."""
        self._parts: list[int] = []
        self._lately: list[float] = []
        self._scale: list[float] = []
        self._requests = 0
        self._members = 0

    def open(self, slot: int) -> None:
        """A replica has come."""
        while len(self.weights) <= slot:
            self.weights.append(0.0)
            self.waiting.append(0.0)
            self._parts.append(0)
            self._lately.append(0.0)
            self._scale.append(1.0)
        # As if it had been given as much as the others: it is not to make up for what it missed.
        known = [given for given in self._lately if given]
        self._lately[slot] = sum(known) / len(known) if known else 0.0
        self._weigh(slot)
        self._members += 1

    def close(self, slot: int) -> None:
        """A replica has gone, and what waits there with it."""
        self.waiting[slot] = self._lately[slot] = self.weights[slot] = 0.0
        self._parts[slot] = 0
        self._members -= 1

    def scale(self, slot: int, factor: float) -> None:
        """What a token weighs there from now on, against one anywhere else."""
        self._scale[slot] = factor
        self._weigh(slot)

    def add(self, slot: int, tokens: float) -> None:
        """A request has so many tokens to be computed there."""
        self.waiting[slot] += tokens
        self._parts[slot] += 1
        self._lately[slot] += LATELY * tokens
        self._weigh(slot)
        self._requests += 1
        if self._requests >= MEMORY * self._members:
            self._requests = 0
            self._lately = [given / 2 for given in self._lately]
            for other in range(len(self._lately)):
                self._weigh(other)

    def done(self, slot: int, tokens: float) -> None:
        """The tokens of a request have been computed, or never will be."""
        self._parts[slot] -= 1
        # Sums of floats leave a rest; where nothing is left, nothing waits.
        self.waiting[slot] = max(0.0, self.waiting[slot] - tokens) if self._parts[slot] > 0 else 0.0
        self._weigh(slot)

    def _weigh(self, slot: int) -> None:
        self.weights[slot] = (self.waiting[slot] + self._lately[slot]) * self._scale[slot]
