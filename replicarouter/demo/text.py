"""Numbers as people read them."""


def number(value: float | None) -> str:
    """A count; a dash when it is unknown."""
    return "–" if value is None else f"{value:,.0f}"


def share(value: float | None) -> str:
    """A ratio as a percentage; a dash when it is unknown."""
    return "–" if value is None else f"{value:.1%}"


def flag(value: bool) -> str:
    """A truth value as metrics have it."""
    return "1" if value else "0"
