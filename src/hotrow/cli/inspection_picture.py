"""Norms and skew of the tables of a checkpoint as one SVG, light or dark as its reader's screen."""

import math
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from hotrow.checkpoint.distribution import Distribution
from hotrow.checkpoint.inspecting import TableStatistics
from hotrow.printable import one_line

WIDTH, PLOT_WIDTH, PLOT_HEIGHT = 960, 400, 260
LEFTS = (64, 540)  # of the two plots
TOP, LEGEND_LINE = 104, 20
POINTS_MOST = 200  # of a line
ROWS_LEAST = 1e-4  # the smallest share of rows on the axis of skew
COLOURS = ("#0969da", "#bf8700", "#1a7f37", "#8250df", "#cf222e", "#57606a")

STYLE = """
  text { font-family: system-ui, -apple-system, "Segoe UI", Helvetica, sans-serif; font-size: 13px; fill: #57606a }
  .paper { fill: #ffffff } .title { font-size: 18px; font-weight: 600; fill: #1f2328 } .head { font-weight: 600 }
  .grid { stroke: #d8dee4 } .axis { stroke: #8c959f } .line { fill: none; stroke-width: 2.5; stroke-linejoin: round }
  @media (prefers-color-scheme: dark) {
    text { fill: #9198a1 } .paper { fill: #0d1117 } .title { fill: #f0f6fc } .grid { stroke: #262c36 }
  }
"""

Points = Sequence[tuple[float, float]]  # across > 0, up from 0 to 1


def inspection_svg(tables: Mapping[str, TableStatistics], subtitle: str) -> str:
    """Left: which share of rows has at most this norm. Right: which share of updates the most updated rows got."""
    norms = {name: norm_points(figures.norms) for name, figures in tables.items()}
    skews = {name: skew_points(figures.updates) for name, figures in tables.items()}
    floor = TOP + PLOT_HEIGHT
    height = floor + 64 + LEGEND_LINE * max(1, len(tables))
    body = [
        f'<rect class="paper" width="{WIDTH}" height="{height}" rx="8"/>',
        f'<text class="title" x="{LEFTS[0]}" y="34">Norms and skew of rows</text>',
        f'<text x="{LEFTS[0]}" y="56">{escape(one_line(subtitle))}</text>',
        *_plot(LEFTS[0], "share of rows", "norm of the value, at most", norms, _decades(norms)),
        *_plot(LEFTS[1], "share of updates", "share of rows, most updated first", skews, (ROWS_LEAST, 1.0)),
        *_legend(list(tables), floor + 64),
    ]
    drawing = "\n".join(body)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="Norms and skew of rows">\n<style>{STYLE}</style>\n{drawing}\n</svg>\n'
    )


def norm_points(norms: Distribution) -> Points:
    """Norm and share of rows up to it; rows of norm 0 have no place on a logarithmic axis and count below it."""
    bins = np.flatnonzero(norms.counts)
    means = norms.sums[bins] / np.maximum(norms.counts[bins], 1)
    shares = norms.counts[bins].cumsum() / max(len(norms), 1)
    return _thinned(means[means > 0], shares[means > 0])


def skew_points(updates: Distribution) -> Points:
    """Share of rows and share of the updates that they got."""
    parts = np.geomspace(ROWS_LEAST, 1.0, 81)
    shares = [updates.share_of_top(float(part)) for part in parts]
    return [(float(part), share) for part, share in zip(parts, shares, strict=True) if share is not None]


def _thinned(across: NDArray[np.float64], up: NDArray[np.float64]) -> Points:
    if not len(across):
        return []
    at = np.unique(np.linspace(0, len(across) - 1, min(POINTS_MOST, len(across))).astype(int))
    return [(float(across[place]), float(up[place])) for place in at]


def _decades(lines: Mapping[str, Points]) -> tuple[float, float]:
    """Powers of ten around all points."""
    places = [x for points in lines.values() for x, _ in points] or [1.0]
    low, high = math.floor(math.log10(min(places))), math.ceil(math.log10(max(places)))
    return 10.0**low, 10.0 ** max(high, low + 1)


def _plot(left: int, title: str, across: str, lines: Mapping[str, Points], ends: tuple[float, float]) -> list[str]:
    floor, right = TOP + PLOT_HEIGHT, left + PLOT_WIDTH
    span = math.log10(ends[1] / ends[0])

    def x_of(value: float) -> float:
        return left + min(max(math.log10(value / ends[0]) / span, 0.0), 1.0) * PLOT_WIDTH

    def y_of(value: float) -> float:
        return floor - value * PLOT_HEIGHT

    parts = [f'<text class="head" x="{left}" y="{TOP - 14}">{title}</text>']
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = y_of(share)
        parts.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{left - 8}" y="{y + 4.5:.1f}" text-anchor="end">{share:.0%}</text>')
    powers = range(round(math.log10(ends[0])), round(math.log10(ends[1])) + 1)
    for power in powers[:: -(-len(powers) // 8)]:
        x = x_of(10.0**power)
        parts.append(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{floor}" y2="{floor + 5}"/>')
        parts.append(f'<text x="{x:.1f}" y="{floor + 20}" text-anchor="middle">{10.0**power:g}</text>')
    parts.append(f'<line class="axis" x1="{left}" x2="{right}" y1="{floor}" y2="{floor}"/>')
    parts.append(f'<text x="{left + PLOT_WIDTH / 2}" y="{floor + 40}" text-anchor="middle">{across}</text>')
    for number, points in enumerate(lines.values()):
        path = " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in points)
        parts.append(f'<polyline class="line" stroke="{_colour(number)}" points="{path}"/>')
    return parts


def _legend(names: Sequence[str], top: float) -> list[str]:
    parts = []
    for number, name in enumerate(names):
        y = top + number * LEGEND_LINE
        parts.append(f'<rect x="{LEFTS[0]}" y="{y - 10:.1f}" width="12" height="12" fill="{_colour(number)}"/>')
        parts.append(f'<text x="{LEFTS[0] + 20}" y="{y:.1f}">{escape(one_line(name))}</text>')
    return parts


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]
