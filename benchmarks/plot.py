"""A saved run as a picture, by matplotlib, which is an extra (`replicarouter[plot]`).

python -m benchmarks.plot benchmarks/results/NAME.json NAME.svg NAME.png
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import runner
from benchmarks.entrants import OURS
from benchmarks.measure import Measurement
from benchmarks.pairs import ratios
from benchmarks.report import summary, tables

FORMATS = (".svg", ".png", ".pdf")

_BARS: Sequence[tuple[str, str]] = (
    ("CPU a streamed chunk at 21,000/s, × nginx", "paced20k"),
    ("CPU a streamed chunk at 5,400/s, × nginx", "paced5k"),
    ("CPU a short request, × nginx", "short"),
    ("CPU a 256 KiB request, × nginx", "long256k"),
    ("CPU a 1 MiB request, × nginx", "long1m"),
    ("memory of an idle stream, × nginx", "idle"),
)
_LINES: Sequence[tuple[str, Callable[[Measurement], float | None]]] = (
    ("carried, % of the rate offered", lambda one: 100 * one.units / (one.offered * one.seconds)),
    ("TTFT p50, ms", lambda one: one.ttft["p50"] if one.ttft else None),
    ("TTFT p99, ms", lambda one: one.ttft["p99"] if one.ttft else None),
    ("ITL p99, ms", lambda one: one.itl["p99"] if one.itl else None),
    ("CPU µs a chunk", lambda one: one.cost or None),
    ("thousand chunks a second", lambda one: one.units / one.seconds / 1000),
)


def draw(measurements: Sequence[Measurement], path: Path) -> None:
    """Draw what the run has: bars of the scenarios with one load, lines of those with many."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    if path.suffix not in FORMATS:
        raise SystemExit(f"{path}: accepted are files ending in {', '.join(FORMATS)}")
    sound = [each for each in measurements if not each.failure]
    found = ratios(sound)
    bars = [(title, found[scenario]) for title, scenario in _BARS if scenario in found]
    steps = _stepped(sound)
    panels = len(bars) + (len(_LINES) if steps else 0)
    if not panels:
        raise SystemExit("there is nothing to draw: one scenario with nginx beside another proxy, at least")
    rows = -(-panels // 3)
    figure = Figure(figsize=(15, 4.2 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = iter(figure.subplots(rows, 3, squeeze=False).flat)
    for title, costs in bars:
        _draw_bars(next(axes), title, costs)
    lines = None
    for title, read in _LINES if steps else ():
        lines = next(axes)
        _draw_lines(lines, title, steps, read)
    for axis in axes:
        axis.set_visible(False)
    if lines is not None:
        handles, labels = lines.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=6)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _stepped(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Return the measurements of the scenarios in which the number of users grows."""
    counts: dict[str, set[int]] = {}
    for each in measurements:
        counts.setdefault(each.scenario, set()).add(each.users)
    return [each for each in measurements if len(counts[each.scenario]) > 1]


def _draw_bars(axis: Any, title: str, costs: dict[str, dict[str, list[float]]]) -> None:
    pairs = {proxy: by["nginx"] for proxy, by in costs.items() if by.get("nginx")}
    names = sorted(pairs, key=lambda name: median(pairs[name]), reverse=True)
    middles = [median(pairs[name]) for name in names]
    ranges = [
        [middle - min(pairs[name]) for name, middle in zip(names, middles, strict=True)],
        [max(pairs[name]) - middle for name, middle in zip(names, middles, strict=True)],
    ]
    colours = ["tab:orange" if name.startswith(OURS) else "tab:blue" for name in names]
    axis.barh(names, middles, xerr=ranges, color=colours, alpha=0.8, capsize=2)
    axis.axvline(1.0, color="black", linewidth=0.8)
    if middles and max(middles) > 10 * min(middles):
        axis.set_xscale("log")
    for row, middle in enumerate(middles):
        axis.annotate(f" {middle:.2f}", (middle, row), va="bottom", fontsize=7)
    axis.set_title(title, fontsize=10)
    axis.tick_params(labelsize=8)
    axis.grid(visible=True, axis="x", alpha=0.3)


def _draw_lines(
    axis: Any, title: str, steps: Sequence[Measurement], read: Callable[[Measurement], float | None]
) -> None:
    for number, proxy in enumerate(dict.fromkeys(each.proxy for each in steps)):
        mine = [each for each in steps if each.proxy == proxy]
        points: dict[int, list[float]] = {}
        for one in mine:
            if (value := read(one)) is not None:
                points.setdefault(one.users, []).append(value)
        users = sorted(points)
        values = [points[count] for count in users]
        style = {"color": f"C{number % 10}", "linewidth": 2 if proxy.startswith(OURS) else 1}
        axis.plot(users, list(map(median, values)), marker="o", markersize=3, label=proxy, **style)
        axis.fill_between(
            users, list(map(min, values)), list(map(max, values)), alpha=0.15, color=style["color"]
        )
    axis.set_xscale("log")
    if title.endswith(("ms", "µs a chunk")):
        axis.set_yscale("log")
    axis.set_title(title, fontsize=10)
    axis.set_xlabel("users", fontsize=9)
    axis.grid(visible=True, alpha=0.3)


def main() -> int:
    """Draw, or tell in Markdown, what was saved."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("runs", type=Path, nargs="+", metavar="FILE.json", help="taken together")
    parser.add_argument(
        "--into", type=Path, action="append", default=[], metavar="FILE", help=".svg, .png, .md"
    )
    arguments = parser.parse_args()
    measurements = runner.load(arguments.runs)
    for path in arguments.into:
        if path.suffix == ".md":
            path.write_text(summary(measurements) + "\n\n" + tables(measurements) + "\n")
        else:
            draw(measurements, path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
