"""How property tests are run: the same examples every time, bounded in number, without a clock."""

from hypothesis import HealthCheck, settings


def examples(count: int) -> settings:
    """At most `count` examples, the same ones in every run."""
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
