"""Curves as pictures that a README can show: one self-contained SVG each, light or dark as its reader's screen."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from hotrow.bench.curve import Point

WIDTH, HEIGHT = 880, 490
LEFT, RIGHT, TOP, BOTTOM = 64, 256, 112, 58  # margins; lines are named at their right end instead of in a legend
LABEL_GAP = 19  # pixels between two names

STYLE = """
  text { font-family: system-ui, -apple-system, "Segoe UI", Helvetica, sans-serif; font-size: 13px; fill: #57606a }
  .paper { fill: #ffffff } .title { font-size: 18px; font-weight: 600; fill: #1f2328 } .name { font-weight: 600 }
  .grid { stroke: #d8dee4; stroke-width: 1 } .axis { stroke: #8c959f; stroke-width: 1 }
  .line { fill: none; stroke-width: 2.5; stroke-linejoin: round; stroke-linecap: round }
  .step { stroke: #0969da } .step-fill { fill: #0969da } .find { stroke: #54aeff } .find-fill { fill: #54aeff }
  .limit { stroke: #bf8700; stroke-dasharray: 7 5 } .limit-fill { fill: #bf8700 }
  .reads { stroke: #8c959f; stroke-dasharray: 2 5 } .reads-fill { fill: #6e7781 }
  .ideal { stroke: #8250df; stroke-dasharray: 7 5 } .ideal-fill { fill: #8250df }
  .band { fill: #0969da; opacity: 0.13 }
  @media (prefers-color-scheme: dark) {
    text { fill: #9198a1 } .paper { fill: #0d1117 } .title { fill: #f0f6fc } .grid { stroke: #262c36 }
    .axis { stroke: #656c76 } .step { stroke: #4493f8 } .step-fill { fill: #4493f8 } .band { fill: #4493f8 }
  }
"""


@dataclass(frozen=True, slots=True)
class Series:
    key: str
    look: str  # class of STYLE
    name: str


@dataclass(frozen=True, slots=True)
class Chart:
    """What is drawn over what; both axes are logarithmic."""

    title: str
    across: str  # key of the points' place on the horizontal axis
    across_name: str
    series: tuple[Series, ...]
    band: tuple[str, str] | None = None  # keys of its lower and upper edge
    ticks_at_points: bool = False  # instead of 1, 2 and 5 of every power of ten
    up_name: str = "millions per second"


GROWTH = Chart(
    "Throughput as the table grows",
    "rows",
    "rows in the table",
    (
        Series("random_read_mrows", "reads", "machine: random reads"),
        Series("limit_mids", "limit", "machine: step at limits"),
        Series("find_mids", "find", "Hotrow, find"),
        Series("step_mids", "step", "Hotrow, whole step"),
    ),
    band=("step_mids_low", "step_mids_high"),
)


@dataclass(frozen=True, slots=True)
class Axis:
    """A logarithmic scale onto pixels."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        part = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + part * (self.end - self.start)

    def ticks(self) -> list[float]:
        """1, 2 and 5 of every power of ten."""
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        values = (digit * 10.0**power for power in powers for digit in (1, 2, 5))
        return [value for value in values if self.low * 0.999 <= value <= self.high * 1.001]


def curve_svg(points: Sequence[Point], subtitle: str) -> str:
    """Throughput over table size."""
    return draw(GROWTH, points, subtitle)


def threads_svg(points: Sequence[Point], dim: int, batches: Sequence[int], subtitle: str) -> str:
    """Throughput of a step over threads, ours and torch's, for the smallest and the largest batch."""
    looks = zip((min(batches), max(batches)), (("find", "reads"), ("step", "limit")), strict=True)
    series = [
        each
        for ids, (ours, torchs) in looks
        for each in (
            Series(f"d{dim}_{ids}_mids", ours, f"Hotrow, {ids:,} ids"),
            Series(f"d{dim}_{ids}_torch_mids", torchs, f"torch, {ids:,} ids"),
        )
    ]
    title = f"A training step at dim {dim} on more threads"
    return draw(Chart(title, "threads", "threads", tuple(series), ticks_at_points=True), points, subtitle)


def draw(chart: Chart, points: Sequence[Point], subtitle: str) -> str:
    """The SVG of a chart."""
    across, up = _axes(chart, points)
    body = [
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}" rx="8"/>',
        f'<text class="title" x="{LEFT}" y="34">{escape(chart.title)}</text>',
        f'<text x="{LEFT}" y="56">{escape(subtitle)}</text>',
        *_grid(chart, points, across, up),
        *([] if chart.band is None else [_band(chart, chart.band, points, across, up)]),
        *(_line(chart, series, points, across, up) for series in chart.series),
        *_names(chart, points, up),
    ]
    drawing = "\n".join(body)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(f"{chart.title}: {chart.up_name} over {chart.across_name}")}">\n'
        f"<style>{STYLE}</style>\n{drawing}\n</svg>\n"
    )


def _axes(chart: Chart, points: Sequence[Point]) -> tuple[Axis, Axis]:
    places = [point[chart.across] for point in points]
    rates = [point[series.key] for point in points for series in chart.series]
    across = Axis(min(places) / 1.12, max(places) * 1.12, LEFT, WIDTH - RIGHT)
    up = Axis(_round_down(min(rates) / 1.2), max(rates) * 1.25, HEIGHT - BOTTOM, TOP)
    return across, up


def _round_down(value: float) -> float:
    """The 1, 2 or 5 below, so that the lowest line of the grid is the axis."""
    power = 10.0 ** math.floor(math.log10(value))
    return max(digit * power for digit in (1, 2, 5) if digit * power <= value)


def _grid(chart: Chart, points: Sequence[Point], across: Axis, up: Axis) -> list[str]:
    parts = []
    for rate in up.ticks():
        y = up(rate)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 10}" y="{y + 4.5:.1f}" text-anchor="end">{rate:g}</text>')
    floor = HEIGHT - BOTTOM
    for place in [point[chart.across] for point in points] if chart.ticks_at_points else across.ticks():
        x = across(place)
        parts.append(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{floor}" y2="{floor + 5}"/>')
        parts.append(f'<text x="{x:.1f}" y="{floor + 22}" text-anchor="middle">{_short(place)}</text>')
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{floor}" y2="{floor}"/>')
    middle, name = (LEFT + WIDTH - RIGHT) / 2, escape(chart.across_name)
    parts.append(f'<text x="{middle}" y="{HEIGHT - 14}" text-anchor="middle">{name}</text>')
    parts.append(f'<text x="{LEFT}" y="{TOP - 16}">{escape(chart.up_name)}</text>')
    return parts


def _band(chart: Chart, edges: tuple[str, str], points: Sequence[Point], across: Axis, up: Axis) -> str:
    lower, upper = edges
    high = [f"{across(point[chart.across]):.1f},{up(point[upper]):.1f}" for point in points]
    low = [f"{across(point[chart.across]):.1f},{up(point[lower]):.1f}" for point in reversed(points)]
    return f'<polygon class="band" points="{" ".join(high + low)}"/>'


def _line(chart: Chart, series: Series, points: Sequence[Point], across: Axis, up: Axis) -> str:
    places = [(across(point[chart.across]), up(point[series.key])) for point in points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = "".join(f'<circle class="{series.look}-fill" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>' for x, y in places)
    return f'<polyline class="line {series.look}" points="{path}"/>{dots}'


def _names(chart: Chart, points: Sequence[Point], up: Axis) -> list[str]:
    """Each line's name and last value at its right end, from the top down, pushed apart where they would touch."""
    parts, lowest = [], 0.0
    for series in sorted(chart.series, key=lambda series: up(points[-1][series.key])):
        rate = points[-1][series.key]
        lowest = max(up(rate) + 4.5, lowest + LABEL_GAP)
        text = f'<tspan class="name {series.look}-fill">{series.name}</tspan> {rate:.{0 if rate >= 10 else 1}f}'
        parts.append(f'<text x="{WIDTH - RIGHT + 12}" y="{lowest:.1f}">{text}</text>')
    return parts


def _short(rows: float) -> str:
    for unit, word in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if rows >= unit:
            return f"{rows / unit:g}{word}"
    return f"{rows:g}"
