"""Facts as people read them. No I/O."""

from collections.abc import Mapping, Sequence

START = "start it, or take it out of the fleet"
"""The cure of what refuses connections."""

MOST_NAMES = 4
"""Names that are listed before the rest is a number."""


def by_value(values: Mapping[str, object]) -> str:
    """Who has which value: `0.32.0 at a, b; 0.31.0 at c`."""
    holders: dict[str, list[str]] = {}
    for name, value in values.items():
        holders.setdefault(str(value), []).append(name)
    return "; ".join(f"{value} at {names(holding)}" for value, holding in holders.items())


def names(given: Sequence[str]) -> str:
    """A list that stays readable for large fleets."""
    shown = ", ".join(given[:MOST_NAMES])
    rest = len(given) - MOST_NAMES
    return f"{shown} and {rest} more" if rest > 0 else shown


def several(problems: Sequence[str]) -> str:
    """What is wrong, in as many words as a reader bears."""
    shown = "; ".join(dict.fromkeys(problems[:MOST_NAMES]))
    rest = len(problems) - MOST_NAMES
    return f"{shown}; and {rest} more" if rest > 0 else shown


def addresses(asked: Sequence[object]) -> str:
    """How many places were asked."""
    return f"{len(asked)} address" + ("" if len(asked) == 1 else "es")


def counted(number: int, noun: str) -> str:
    """A number of things."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def median(values: Sequence[float]) -> float | None:
    """The middle one; None of nothing."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else None
