"""Numbers and names as the verdicts write them."""

from collections.abc import Sequence
from math import floor

MOST_NAMES = 3
"""Names that are listed; of more the count is told."""


def number(value: float) -> str:
    """A count of whole things."""
    return f"{whole(value):,}"


def whole(value: float) -> int:
    """The nearest whole number; a half, which a middle may be, counts as one."""
    return floor(value + 0.5)


def percent(share: float) -> str:
    """A share from 0 to 1; one digit more where it is small."""
    return f"{share:.1%}" if 0 < share < 0.095 else f"{share:.0%}"


def seconds(value: float) -> str:
    """A duration in the unit that suits it."""
    if value < 1:
        return f"{value * 1000:.3g} ms"
    return f"{value:.3g} s" if value < 1000 else f"{value:,.0f} s"


def length(value: float) -> str:
    """The duration of a window, which nobody needs to the hundredth."""
    return seconds(value if value < 1 else round(value, 1))


def counted(count: float, word: str) -> str:
    """A count and its word, which takes an s for more than one."""
    text = number(count)
    return f"{text} {word}" + ("" if text == "1" else "s")


def names(found: Sequence[str]) -> str:
    """Some names and how many more there are."""
    listed = ", ".join(found[:MOST_NAMES])
    return listed if len(found) <= MOST_NAMES else f"{listed} and {len(found) - MOST_NAMES} more"


def power_of_two(least: float) -> int:
    """The smallest power of two that is not below `least`."""
    power = 1
    while power < least:
        power *= 2
    return power
