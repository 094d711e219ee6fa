"""What is compared only within a repetition, seconds apart: ratios of cost, differences of latency."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median

from benchmarks.entrants import BEFORE, DIRECT
from benchmarks.measure import Measurement

BASELINES = ("nginx", "vllm-router", "smg", BEFORE)

Ratios = dict[str, dict[str, dict[str, list[float]]]]
Differences = dict[str, dict[str, dict[str, dict[str, list[float]]]]]


def ratios(measurements: Iterable[Measurement]) -> Ratios:
    """Return for each scenario, proxy and baseline the proxy's cost over the baseline's, one a pair.

    The cost is CPU time for each request or chunk, or memory for each open stream. What fell behind the
    offered rate is left out, and so is a proxy with another number of workers.
    """
    found: Ratios = {}
    for one, base in _pairs(measurements, BASELINES):
        if _cost(one) > 0 and _cost(base) > 0:
            by_baseline = found.setdefault(one.scenario, {}).setdefault(one.proxy, {})
            by_baseline.setdefault(_name(base), []).append(round(_cost(one) / _cost(base), 3))
    return found


def differences(measurements: Iterable[Measurement]) -> Differences:
    """Return for each scenario, proxy and baseline how much later answers and events came, milliseconds.

    The names of the innermost are `ttft p50` and the like; baselines are nginx and no proxy at all.
    """
    found: Differences = {}
    for one, base in _pairs(measurements, ("nginx", DIRECT)):
        by_baseline = found.setdefault(one.scenario, {}).setdefault(one.proxy, {})
        figures = by_baseline.setdefault(_name(base), {})
        for kind in ("ttft", "itl", "latency"):
            ours, theirs = one.times(kind), base.times(kind)
            for share in ("p50", "p99") if ours and theirs else ():
                assert ours is not None
                assert theirs is not None
                figures.setdefault(f"{kind} {share}", []).append(round(ours[share] - theirs[share], 3))
    return found


def mid(found: Sequence[Measurement], of: Callable[[Measurement], float]) -> float:
    """Return the median over the measurements."""
    return median(of(each) for each in found)


def spread(values: Sequence[float], digits: int, sign: str = "") -> str:
    """Return median and range as text; a dash when there is nothing."""
    if not values:
        return "-"
    if len(values) == 1:
        return f"{values[0]:{sign}.{digits}f}"
    middle, least, most = (f"{each:{sign}.{digits}f}" for each in (median(values), min(values), max(values)))
    return f"{middle} ({least} to {most})"


def _pairs(
    measurements: Iterable[Measurement], names: Sequence[str]
) -> Iterator[tuple[Measurement, Measurement]]:
    """Yield all with each of their baselines: of the same repetition, scenario, users and workers."""
    groups: dict[tuple[str, int, int], list[Measurement]] = {}
    for each in measurements:
        if not each.failure and not each.behind:
            groups.setdefault((each.scenario, each.repetition, each.users), []).append(each)
    for group in groups.values():
        bases = [each for each in group if _name(each) in names]
        for one in group:
            for base in bases:
                if one.proxy not in {base.proxy, DIRECT} and _alike(one, base):
                    yield one, base


def _alike(one: Measurement, base: Measurement) -> bool:
    return base.proxy == DIRECT or one.workers == base.workers


def _name(each: Measurement) -> str:
    """Return the proxy's name when it runs with its default policy, else the whole label."""
    name = each.proxy.partition(":")[0]
    return name if each.proxy in {name, f"{name}:workers={each.workers}"} else each.proxy


def _cost(each: Measurement) -> float:
    if each.proxy == DIRECT:
        return 0.0
    return each.growth / each.held if each.held else each.cost
