"""How one number went over a window."""

from collections.abc import Sequence
from statistics import median

OUTLIERS = 0.2
"""Share of the looks that may disagree with what is called lasting: a moment between two batches of work
is no proof that nothing was amiss."""


class Course:
    """The values of one number, at least one, in the order of time."""

    __slots__ = ("values",)

    def __init__(self, values: Sequence[float]) -> None:
        if not values:
            raise ValueError("a course has at least one value")
        self.values = tuple(values)

    def __repr__(self) -> str:
        return f"Course({', '.join(f'{value:g}' for value in self.values)})"

    @property
    def last(self) -> float:
        """The value at the last look."""
        return self.values[-1]

    @property
    def median(self) -> float:
        """The value in the middle."""
        return median(self.values)

    @property
    def most(self) -> float:
        """The largest value."""
        return max(self.values)

    @property
    def floor(self) -> float:
        """What it never fell below, but for the share `OUTLIERS` of the looks."""
        return sorted(self.values)[self._outliers]

    @property
    def ceiling(self) -> float:
        """What it never rose above, but for the share `OUTLIERS` of the looks."""
        return sorted(self.values)[-1 - self._outliers]

    @property
    def _outliers(self) -> int:
        return int(OUTLIERS * (len(self.values) - 1))
