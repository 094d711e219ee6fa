"""Numbers as people read them."""


def number(value: float | None) -> str:
    """A count; a dash when it is unknown."""
    return "–" if value is None else f"{value:,.0f}"


def seconds_text(value: float | None) -> str:
    """A duration in seconds or, below one, milliseconds; a dash when it is unknown."""
    if value is None:
        return "–"
    return f"{value:.2f} s" if value >= 1 else f"{value * 1000:.0f} ms"


def share(value: float | None) -> str:
    """A ratio as a percentage; a dash when it is unknown."""
    return "–" if value is None else f"{value:.1%}"


def flag(value: bool) -> str:
    """A truth value as metrics have it."""
    return "1" if value else "0"
