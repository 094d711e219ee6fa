"""From the samples of one metric, of which a page may hold several, to one number.

The first present of several names counts: engines rename metrics and export both for some releases.
A value that is not finite counts as absent.
"""

from collections.abc import Sequence
from math import isfinite

from replicarouter.engines.base import Samples


def values(samples: Samples, names: Sequence[str]) -> list[float]:
    """Return the finite values of the first of `names` that has any."""
    for name in names:
        listed = samples.get(name)
        if listed is None:
            continue
        found = [value for _, value in listed if isfinite(value)]
        if found:
            return found
    return []


def total(samples: Samples, names: Sequence[str]) -> float | None:
    """Return the sum over all samples of the metric, `None` when there is none."""
    found = values(samples, names)
    return sum(found) if found else None


def largest(samples: Samples, names: Sequence[str]) -> float | None:
    """Return the largest sample of the metric, `None` when there is none."""
    return max(values(samples, names), default=None)


def label(samples: Samples, name: str) -> str:
    """Return the first value of the label `name` found on any sample, or an empty string."""
    for found in samples.values():
        for labels, _ in found:
            if name in labels:
                return labels[name]
    return ""
