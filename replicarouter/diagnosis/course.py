"""How one number went over a window."""

from collections.abc import Sequence

OUTLIERS = 0.2
"""Share of the looks that may disagree with what is called lasting: a moment between two batches of work
is no proof that nothing was amiss."""


class Course:
    """The values of one number, at least one, in the order of time."""

    __slots__ = ("_ordered", "values")

    def __init__(self, values: Sequence[float]) -> None:
        if not values:
            raise ValueError("a course has at least one value")
        self.values = tuple(values)
        self._ordered = sorted(values)

    def __repr__(self) -> str:
        return f"Course({', '.join(f'{value:g}' for value in self.values)})"

    @property
    def last(self) -> float:
        """The value at the last look."""
        return self.values[-1]

    @property
    def median(self) -> float:
        """The value in the middle."""
        ordered, half = self._ordered, len(self._ordered) // 2
        return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2

    @property
    def most(self) -> float:
        """The largest value."""
        return self._ordered[-1]

    @property
    def floor(self) -> float:
        """What it never fell below, but for the share `OUTLIERS` of the looks."""
        return self._ordered[self._outliers]

    @property
    def ceiling(self) -> float:
        """What it never rose above, but for the share `OUTLIERS` of the looks."""
        return self._ordered[-1 - self._outliers]

    @property
    def _outliers(self) -> int:
        return int(OUTLIERS * (len(self.values) - 1))
