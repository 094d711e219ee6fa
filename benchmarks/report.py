"""Tables of measurements: medians over repetitions, and ratios paired within a repetition."""

from collections.abc import Callable, Iterable, Sequence
from statistics import median

from benchmarks.measure import Measurement
from benchmarks.proxies import DIRECT

OURS = "replicarouter"


def tables(measurements: Sequence[Measurement]) -> str:
    """Return everything as Markdown: one table a scenario, then the paired ratios."""
    scenarios = list(dict.fromkeys(each.scenario for each in measurements))
    parts = []
    for scenario in scenarios:
        chosen = [each for each in measurements if each.scenario == scenario]
        is_idle = any(each.held for each in chosen)
        parts.append(f"### {scenario}\n\n" + (_idle_table(chosen) if is_idle else _table(chosen)))
    parts.append(_ratio_table(measurements))
    return "\n\n".join(parts)


def ratios(measurements: Iterable[Measurement]) -> dict[str, dict[str, list[float]]]:
    """Return for each scenario and rival the router's cost over the rival's, one a repetition.

    The cost is CPU time for each request or chunk, or memory for each idle stream. What fell
    behind the offered rate is left out.
    """
    costs: dict[tuple[str, int], dict[str, float]] = {}
    for each in measurements:
        cost = each.bytes_per_stream if each.held else each.cost
        if not each.failure and not each.behind and each.proxy != DIRECT and cost > 0:
            costs.setdefault((each.scenario, each.repetition), {})[each.proxy] = cost
    found: dict[str, dict[str, list[float]]] = {}
    for (scenario, _), by_proxy in costs.items():
        for rival, cost in by_proxy.items():
            if rival != OURS and OURS in by_proxy:
                pairs = found.setdefault(scenario, {}).setdefault(rival, [])
                pairs.append(round(by_proxy[OURS] / cost, 3))
    return found


def one_line(each: Measurement) -> str:
    """Return what is printed while the run goes on."""
    start = f"{each.repetition + 1}  {each.scenario:9} {each.proxy:14}"
    if each.failure:
        return f"{start} FAILED: {each.failure}"
    trouble = f"  ERRORS {dict(each.errors)}" if each.errors else ""
    trouble += "  BEHIND the offered rate" if each.behind else ""
    if each.held:
        return f"{start} {each.held} streams, {each.bytes_per_stream / 1024:.1f} KiB each{trouble}"
    cost = f"{each.cost:7.1f}" if each.proxy != DIRECT else "      -"
    return (
        f"{start} {cost} µs/{each.unit}  {each.units / each.seconds:8.0f} {each.unit}s/s"
        f"  foreign {each.foreign:.2f}{trouble}"
    )


def _table(measurements: Sequence[Measurement]) -> str:
    unit = measurements[0].unit
    streams = unit == "chunk"
    head = ["proxy", "n", f"CPU µs a {unit} (min to max)", "own + kernel", f"{unit}s/s", "cores"]
    head += ["delay", "TTFT", "added TTFT", "ITL", "added ITL"] if streams else ["latency", "added"]
    head += ["tools µs", "foreign (max)", "busiest", "errors"]
    rows = []
    baseline = {each.repetition: each for each in measurements if each.proxy == DIRECT}
    for proxy, found in _by_proxy(measurements):
        cost = _spread([each.cost for each in found], 1) if proxy != DIRECT else "-"
        behind = sum(one.behind for one in found)
        row = [proxy, f"{len(found)}" + (f", {behind} behind" if behind else ""), cost]
        row.append(
            f"{_mid(found, lambda one: one.microseconds(one.user)):.1f} + "
            f"{_mid(found, lambda one: one.microseconds(one.system)):.1f}"
        )
        row.append(f"{_mid(found, lambda one: one.units / one.seconds):.0f}")
        row.append(f"{_mid(found, lambda one: (one.user + one.system) / one.seconds):.2f}")
        for kind in ("delay", "ttft", "itl") if streams else ("latency",):
            row.append(_percentiles(found, kind))
            if kind != "delay":
                row.append(_added(found, baseline, kind))
        foreign = f"{_mid(found, lambda one: one.foreign):.1f}"
        row += [_tools(found), f"{foreign} ({max(one.foreign for one in found):.1f})"]
        row += [f"{_mid(found, lambda one: one.busiest_share):.2f}", str(_errors(found))]
        rows.append(row)
    return _markdown(head, rows)


def _idle_table(measurements: Sequence[Measurement]) -> str:
    head = ["proxy", "n", "streams", "RSS before → with, MiB", "KiB a stream (min to max)", "errors"]
    rows = []
    for proxy, found in _by_proxy(measurements):
        before = _mid(found, lambda one: one.rss_before / 2**20)
        with_streams = _mid(found, lambda one: one.rss / 2**20)
        each = _spread([one.bytes_per_stream / 1024 for one in found], 1)
        held = f"{_mid(found, lambda one: one.held):.0f}"
        row = [proxy, str(len(found)), held, f"{before:.1f} → {with_streams:.1f}", each]
        rows.append([*row, str(_errors(found))])
    return _markdown(head, rows)


def _ratio_table(measurements: Sequence[Measurement]) -> str:
    rows = [
        [scenario, f"{OURS} / {rival}", str(len(pairs)), _spread(pairs, 2)]
        for scenario, rivals in ratios(measurements).items()
        for rival, pairs in rivals.items()
    ]
    return "### Paired ratios\n\n" + _markdown(["scenario", "", "n", "median (min to max)"], rows)


def _by_proxy(measurements: Sequence[Measurement]) -> list[tuple[str, list[Measurement]]]:
    sound = [each for each in measurements if not each.failure]
    names = dict.fromkeys(each.proxy for each in sound)
    return [(name, [each for each in sound if each.proxy == name]) for name in names]


def _mid(found: Sequence[Measurement], of: Callable[[Measurement], float]) -> float:
    return median(of(each) for each in found)


def _spread(values: Sequence[float], digits: int) -> str:
    return (
        f"{median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"
        if values
        else "-"
    )


def _times(each: Measurement, kind: str) -> dict[str, float] | None:
    return {
        "latency": each.latency,
        "ttft": each.ttft,
        "itl": each.itl,
        "delay": each.delay,
    }[kind]


def _percentiles(found: Sequence[Measurement], kind: str) -> str:
    times = [each for one in found if (each := _times(one, kind)) is not None]
    if not times:
        return "-"
    return "/".join(f"{median(one[share] for one in times):.1f}" for share in ("p50", "p99"))


def _added(found: Sequence[Measurement], baseline: dict[int, Measurement], kind: str) -> str:
    """Return the medians of the differences to the row without a proxy in the same repetition."""
    pairs = []
    for one in found:
        base = baseline.get(one.repetition)
        ours, theirs = _times(one, kind), _times(base, kind) if base else None
        if one.proxy != DIRECT and ours is not None and theirs is not None:
            pairs.append((ours, theirs))
    if not pairs:
        return "-"
    return "/".join(
        f"{median(ours[share] - theirs[share] for ours, theirs in pairs):+.1f}" for share in ("p50", "p99")
    )


def _tools(found: Sequence[Measurement]) -> str:
    engine = _mid(found, lambda one: one.microseconds(one.engine_cpu))
    client = _mid(found, lambda one: one.microseconds(one.client_cpu))
    return f"{engine:.1f} + {client:.1f}"


def _errors(found: Sequence[Measurement]) -> int:
    return sum(sum(one.errors.values()) + one.cut_bodies for one in found)


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
