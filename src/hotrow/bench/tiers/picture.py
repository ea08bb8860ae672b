"""Training throughput over the id space and over the rows on disk as one SVG, in the look of the other pictures."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from hotrow.bench.picture import STYLE
from hotrow.bench.rounds import Figures
from hotrow.bench.tiers.capacity import CapacityPoint, points_of
from hotrow.bench.tiers.plan import TiersPlan

WIDTH, HEIGHT = 880, 420
TOP, BOTTOM = 112, 64
PANELS = ((64, 440), (500, 850))  # left and right edges
BAR = 0.72  # of the distance between two bars
FLAT = 0.9  # the target: slowest over fastest


@dataclass(frozen=True, slots=True)
class CapacityBar:
    name: str
    rate: float  # samples a second


def capacity_svg(plan: TiersPlan, figures: Figures, subtitle: str) -> str:
    """Two panels on one scale from 0: all spaces with the most rows, all numbers of rows in the largest space."""
    points = points_of(plan.capacity)
    most, largest = max(point.rows for point in points), max(point.parameters for point in points)
    by_rows = sorted((each for each in points if each.parameters == largest), key=lambda each: each.rows)
    spaces = [
        CapacityBar(f"{each.parameters / 1e12:g} T", _rate(figures, each)) for each in points if each.rows == most
    ]
    rows = [CapacityBar(f"{each.rows / 1e6:g} M", _rate(figures, each)) for each in by_rows]
    top = 1.12 * max(bar.rate for bar in (*spaces, *rows))
    body = [
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}" rx="8"/>',
        f'<text class="title" x="{PANELS[0][0]}" y="34">Training throughput as the table grows on disk</text>',
        f'<text x="{PANELS[0][0]}" y="56">{escape(subtitle)}</text>',
        *_panel(PANELS[0], spaces, top, f"parameters of the id space, {most / 1e6:g} M rows on disk"),
        *_panel(PANELS[1], rows, top, f"rows on disk, {largest / 1e12:g} T parameters"),
    ]
    drawing = "\n".join(body)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'aria-label="Samples per second over parameters and over rows on disk">\n'
        f"<style>{STYLE}</style>\n{drawing}\n</svg>\n"
    )


def _rate(figures: Figures, point: CapacityPoint) -> float:
    """Of the median round, by the ratios within rounds: other programs slow rounds down, and all points alike."""
    rates = [value or 0.0 for key, value in figures.items() if key.endswith("_samples_per_s")]
    return (figures[f"{point.name}_relative"] or 0.0) * sum(rates) / len(rates)


def _panel(edges: tuple[int, int], bars: Sequence[CapacityBar], top: float, name: str) -> list[str]:
    left, right = edges
    floor, step = HEIGHT - BOTTOM, (right - left) / len(bars)

    def y(rate: float) -> float:
        return floor - (floor - TOP) * rate / top

    parts = [f'<text x="{left}" y="{TOP - 16}">samples per second; dashed: {FLAT:.0%} of the fastest</text>']
    fastest = max(bar.rate for bar in bars)
    for place, bar in enumerate(bars):
        x = left + (place + 0.5) * step
        high, half = y(bar.rate), BAR * step / 2
        parts.append(
            f'<rect class="step-fill" x="{x - half:.1f}" y="{high:.1f}" width="{2 * half:.1f}" '
            f'height="{floor - high:.1f}" rx="2"/>'
        )
        parts.append(
            f'<text x="{x:.1f}" y="{floor - 12}" text-anchor="middle" style="fill: #ffffff">{bar.rate:,.0f}</text>'
        )
        parts.append(f'<text x="{x:.1f}" y="{floor + 20}" text-anchor="middle">{escape(bar.name)}</text>')
    line = y(FLAT * fastest)
    parts.append(f'<line class="limit" x1="{left}" x2="{right}" y1="{line:.1f}" y2="{line:.1f}"/>')
    parts.append(f'<line class="axis" x1="{left}" x2="{right}" y1="{floor}" y2="{floor}"/>')
    middle = (left + right) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 20}" text-anchor="middle">{escape(name)}</text>')
    return parts
