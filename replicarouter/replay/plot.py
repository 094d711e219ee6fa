"""Replays as a picture, by matplotlib, which is an extra (`replicarouter[plot]`)."""

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean

from replicarouter.replay.campaign import Run
from replicarouter.replay.figures import Figures

FORMATS = (".svg", ".png", ".pdf")

_PANELS: Sequence[tuple[str, Callable[[Figures], float]]] = (
    ("good answers, % of requests", lambda one: 100 * one.good_share),
    ("goodput, answers/s", lambda one: one.goodput),
    ("prefix hits, % of prompt tokens", lambda one: 100 * one.hit_ratio),
    ("TTFT p99, s", lambda one: one.ttft.p99 or 0.0),
    ("mean ITL of an answer, p90, ms", lambda one: 1000 * (one.itl.p90 or 0.0)),
    ("uncached tokens, busiest replica / mean", lambda one: one.uncached_imbalance),
)


class PlotError(Exception):
    """No picture can be made; the message says what is missing or not known."""


def check(path: Path) -> None:
    """Raise `PlotError` now rather than after hours of replays."""
    if path.suffix not in FORMATS:
        raise PlotError(f"{path}: accepted are files ending in {', '.join(FORMATS)}")
    try:
        import matplotlib  # noqa: F401, PLC0415
    except ImportError:
        raise PlotError("plots need matplotlib: pip install 'replicarouter[plot]'") from None


def draw(runs: Sequence[Run], path: Path, title: str) -> None:
    """Draw the main figures by load, a line a policy, the range over seeds shaded; raises `PlotError`."""
    check(path)
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(13, 7.5), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    axes = figure.subplots(2, 3)
    for axis, (name, read) in zip(axes.flat, _PANELS, strict=True):
        axis.set_title(name, fontsize=10)
        axis.set_xlabel("load", fontsize=9)
        axis.grid(visible=True, alpha=0.3)
        for policy in dict.fromkeys(run.policy for run in runs):
            loads, values = _series([run for run in runs if run.policy == policy], read)
            means = [fmean(one) for one in values]
            (line,) = axis.plot(loads, means, marker="o", markersize=3, label=policy)
            axis.fill_between(
                loads, [min(one) for one in values], [max(one) for one in values],
                alpha=0.15, color=line.get_color(),
            )  # fmt: skip
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 8))
    try:
        figure.savefig(path)
    except OSError as error:
        raise PlotError(f"{path}: {error.strerror or error}") from None


def _series(runs: Sequence[Run], read: Callable[[Figures], float]) -> tuple[list[float], list[list[float]]]:
    loads = sorted({run.load for run in runs})
    return loads, [[read(run.figures) for run in runs if run.load == load] for load in loads]
