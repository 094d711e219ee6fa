"""Tables of measurements: medians over repetitions, and what is paired within a repetition."""

from collections.abc import Callable, Mapping, Sequence

from benchmarks.entrants import DIRECT
from benchmarks.measure import Measurement
from benchmarks.pairs import BASELINES, differences, mid, ratios, spread

_ERRORS = "errors"
_MIB = 2**20


def tables(measurements: Sequence[Measurement]) -> str:
    """Return everything as Markdown: a table a scenario, and the added latencies of those with streams."""
    parts = []
    for scenario in dict.fromkeys(each.scenario for each in measurements):
        chosen = [each for each in measurements if each.scenario == scenario]
        parts.append(f"### {scenario}\n\n" + _body(chosen))
    return "\n\n".join(parts)


def summary(measurements: Sequence[Measurement]) -> str:
    """Return the one table to quote: a row a proxy, the figures that were asked for, ratios first."""
    costs, added = ratios(measurements), differences(measurements)

    def times_nginx(scenario: str) -> Callable[[str], str]:
        def cell(proxy: str) -> str:
            pairs = costs.get(scenario, {}).get(proxy, {}).get("nginx", [])
            return spread(pairs, 2) if pairs else _behind(measurements, scenario, proxy)

        return cell

    def over_nginx(figure: str) -> Callable[[str], str]:
        return lambda proxy: spread(
            added.get("paced20k", {}).get(proxy, {}).get("nginx", {}).get(figure, []), 2, "+"
        )

    def held(scenario: str, of: Callable[[Measurement], float]) -> Callable[[str], str]:
        return lambda proxy: spread(
            [of(each) for each in measurements if each.scenario == scenario and _is(each, proxy)], 1
        )

    columns: Mapping[str, Callable[[str], str]] = {
        "chunk at 21,000/s, × nginx": times_nginx("paced20k"),
        "short request, × nginx": times_nginx("short"),
        "1 MB request, × nginx": times_nginx("long1m"),
        "TTFT p50 over nginx, ms": over_nginx("ttft p50"),
        "ITL p99 over nginx, ms": over_nginx("itl p99"),
        "KiB an open stream": held("idle", lambda one: one.growth / max(1, one.held) / 1024),
        "8 stalled readers, MiB": held("stalled", lambda one: one.growth / _MIB),
        "fell behind first at": lambda proxy: _first_behind(measurements, proxy),
    }
    proxies = [each for each in dict.fromkeys(each.proxy for each in measurements) if each != DIRECT]
    rows = [[proxy, *(cell(proxy) for cell in columns.values())] for proxy in proxies]
    return markdown(["proxy", *columns], rows)


def one_line(each: Measurement) -> str:
    """Return what is printed while the run goes on."""
    start = f"{each.repetition + 1}  {each.scenario:9} {each.proxy:24}"
    if each.failure:
        return f"{start} FAILED: {each.failure}"
    trouble = f"  ERRORS {dict(each.errors)}" if each.errors else ""
    trouble += "  BEHIND the offered rate" if each.behind else ""
    if each.held:
        size = f"{each.growth / _MIB:7.1f} MiB, {each.growth / each.held / 1024:.1f} KiB each"
        return f"{start} {each.held} streams, {size}{trouble}"
    cost = f"{each.cost:7.1f}" if each.proxy != DIRECT else "      -"
    rate = each.units / each.seconds if each.seconds else 0.0
    return (
        f"{start} {each.users:5} users {cost} µs/{each.unit}  {rate:8.0f} {each.unit}s/s"
        f"  foreign {each.foreign:.2f}{trouble}"
    )


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _body(chosen: Sequence[Measurement]) -> str:
    if any(each.held for each in chosen):
        return _held_table(chosen)
    if len({each.users for each in chosen}) > 1:
        return _steps_tables(chosen)
    if chosen[0].unit == "chunk":
        return _cost_table(chosen) + "\n\n" + _added_table(chosen)
    return _cost_table(chosen)


def _cost_table(measurements: Sequence[Measurement]) -> str:
    unit = measurements[0].unit
    streams = unit == "chunk"
    costs = ratios(measurements).get(measurements[0].scenario, {})
    bases = [name for name in BASELINES if any(name in found for found in costs.values())]
    head = ["proxy", "n", f"CPU µs a {unit}", *(f"× {name}" for name in bases)]
    head += ["own + kernel", f"{unit}s/s", "cores"]
    head += ["delay", "TTFT", "ITL"] if streams else ["latency"]
    head += ["tools µs", "foreign (max)", "busiest", _ERRORS]
    rows = []
    for proxy, found in by_proxy(measurements):
        behind = sum(one.behind for one in found)
        row = [proxy, f"{len(found)}" + (f", {behind} behind" if behind else "")]
        row.append(spread([each.cost for each in found], 1) if proxy != DIRECT else "-")
        row += [spread(costs.get(proxy, {}).get(name, []), 2) for name in bases]
        row.append(
            f"{mid(found, lambda one: one.microseconds(one.user)):.1f} + "
            f"{mid(found, lambda one: one.microseconds(one.system)):.1f}"
        )
        row.append(f"{mid(found, lambda one: one.units / one.seconds):.0f}")
        row.append(f"{mid(found, lambda one: (one.user + one.system) / one.seconds):.2f}")
        row += [percentiles(found, kind) for kind in (("delay", "ttft", "itl") if streams else ("latency",))]
        foreign = f"{mid(found, lambda one: one.foreign):.1f}"
        row += [_tools(found), f"{foreign} ({max(one.foreign for one in found):.1f})"]
        row += [f"{mid(found, lambda one: one.busiest_share):.2f}", str(errors(found))]
        rows.append(row)
    return markdown(head, rows)


def _added_table(measurements: Sequence[Measurement]) -> str:
    found = differences(measurements).get(measurements[0].scenario, {})
    figures = {"ttft p50": "TTFT p50", "ttft p99": "TTFT p99", "itl p50": "ITL p50", "itl p99": "ITL p99"}
    bases = [base for base in ("nginx", DIRECT) if any(base in each for each in found.values())]
    against = {"nginx": "over nginx", DIRECT: "added"}
    head = ["ms", *(f"{words} {against[base]}" for base in bases for words in figures.values())]
    rows = [
        [proxy, *(spread(by.get(base, {}).get(each, []), 2, "+") for base in bases for each in figures)]
        for proxy, by in found.items()
    ]
    return markdown(head, rows)


def _held_table(measurements: Sequence[Measurement]) -> str:
    head = ["proxy", "n", "streams", "RSS before → with, MiB", "grew by, MiB", "KiB a stream"]
    head += ["events sent by replicas", _ERRORS]
    rows = []
    for proxy, found in by_proxy(measurements):
        before = mid(found, lambda one: one.rss_before / _MIB)
        with_streams = mid(found, lambda one: one.rss / _MIB)
        row = [proxy, str(len(found)), f"{mid(found, lambda one: one.held):.0f}"]
        row.append(f"{before:.1f} → {with_streams:.1f}")
        row.append(spread([one.growth / _MIB for one in found], 1))
        row.append(spread([one.growth / max(1, one.held) / 1024 for one in found], 1))
        rows.append([*row, f"{mid(found, lambda one: one.events_under_way):.0f}", str(errors(found))])
    return markdown(head, rows)


def _steps_tables(measurements: Sequence[Measurement]) -> str:
    """Return a table for each figure: a row a number of users, a column a proxy."""
    proxies = dict(by_proxy(measurements))
    steps = sorted({each.users for each in measurements})
    figures: Mapping[str, Callable[[Sequence[Measurement]], str]] = {
        "carried, % of the rate offered": _carried,
        "TTFT p50/p99, ms": lambda found: percentiles(found, "ttft"),
        "ITL p50/p99, ms": lambda found: percentiles(found, "itl"),
        "CPU µs a chunk": lambda found: f"{mid(found, lambda one: one.cost):.1f}",
        _ERRORS: lambda found: str(errors(found)),
    }
    parts = []
    for name, cell in figures.items():
        rows = []
        for users in steps:
            chosen = [[each for each in found if each.users == users] for found in proxies.values()]
            rows.append([str(users), *(cell(found) if found else "-" for found in chosen)])
        if name != _ERRORS or any(cell != "0" for row in rows for cell in row[1:]):
            parts.append(f"{name}\n\n" + markdown(["users", *proxies], rows))
    return "\n\n".join(parts)


def by_proxy(measurements: Sequence[Measurement]) -> list[tuple[str, list[Measurement]]]:
    """Return the sound measurements of each proxy, in the order in which these were named."""
    sound = [each for each in measurements if not each.failure]
    names = dict.fromkeys(each.proxy for each in sound)
    return [(name, [each for each in sound if each.proxy == name]) for name in names]


def percentiles(found: Sequence[Measurement], kind: str) -> str:
    """Return the medians of p50 and p99, milliseconds."""
    times = [each for one in found if (each := one.times(kind)) is not None]
    if not times:
        return "-"
    middle = [sorted(one[share] for one in times)[len(times) // 2] for share in ("p50", "p99")]
    return "/".join(f"{each:.2f}" if each < 10 else f"{each:.1f}" for each in middle)


def errors(found: Sequence[Measurement]) -> int:
    """Return how much went wrong in all."""
    return sum(sum(one.errors.values()) + one.cut_bodies for one in found)


def _carried(found: Sequence[Measurement]) -> str:
    return f"{100 * mid(found, lambda one: one.units / (one.offered * one.seconds)):.0f}"


def _behind(measurements: Sequence[Measurement], scenario: str, proxy: str) -> str:
    """Return at what rate a proxy was that never kept up, so that its cost is not compared."""
    found = [each for each in measurements if each.scenario == scenario and _is(each, proxy)]
    if not found or not all(each.behind for each in found):
        return "-"
    return f"behind, {mid(found, lambda one: one.units / one.seconds):.0f}/s"


def _first_behind(measurements: Sequence[Measurement], proxy: str) -> str:
    """Return the least number of users at which a proxy fell behind more often than not."""
    found = [each for each in measurements if each.scenario == "users" and _is(each, proxy)]
    if not found:
        return "-"
    for users in sorted({each.users for each in found}):
        at = [each.behind for each in found if each.users == users]
        if 2 * sum(at) > len(at):
            return f"{users} users"
    return f"never (to {max(each.users for each in found)})"


def _is(each: Measurement, proxy: str) -> bool:
    return each.proxy == proxy and not each.failure


def _tools(found: Sequence[Measurement]) -> str:
    engine = mid(found, lambda one: one.microseconds(one.engine_cpu))
    client = mid(found, lambda one: one.microseconds(one.client_cpu))
    return f"{engine:.1f} + {client:.1f}"
