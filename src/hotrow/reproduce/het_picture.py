"""The picture of HET's Fig. 9: speed-up by workers, a plot for each link."""

from collections.abc import Mapping, Sequence
from html import escape
from math import log2
from typing import Any

from hotrow.reproduce.het_cluster import TITLES
from hotrow.sim.study.picture.drawing import AxisScale, apart, mode_class, style, text

WIDTH, HEIGHT, TOP, FLOOR = 1080, 400, 74, 340
PLOTS = ((70, 430), (610, 970))  # left and right edges


def picture(result: Mapping[str, Any]) -> str:
    """SVG."""
    parts = [text("Samples per second, times Hybrid without a cache and with one worker", 24, 28, look="title")]
    parts += _legend(list(next(iter(result["links"].values()))))
    for (left, right), (link, of) in zip(PLOTS, result["links"].items(), strict=True):
        parts += _plot(left, right, link, of)
    height = HEIGHT + 44
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="sim" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img"><style>{style()}</style>'
        f'<rect class="paper" width="{WIDTH}" height="{height}"/>{"".join(parts)}</svg>\n'
    )


def _plot(left: int, right: int, link: str, of: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    first = of["hybrid"][0]["qps"]
    counts = [each["workers"] for each in of["hybrid"]]
    most = max(each["qps"] / first for speeds in of.values() for each in speeds)
    across = AxisScale(log2(counts[0]), max(log2(counts[-1]), log2(counts[0]) + 1), left, right)
    up = AxisScale(0, most * 1.05, FLOOR, TOP)
    parts = [text(f"{link} Gb/s", left, TOP - 14, look="head")]
    for value in up.ticks(5):
        y = up(value)
        parts.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(text(f"{value:g}", left - 8, y + 4.5, anchor="end"))
    parts.append(f'<line class="axis" x1="{left}" x2="{right}" y1="{FLOOR}" y2="{FLOOR}"/>')
    parts += [text(str(count), across(log2(count)), FLOOR + 20, anchor="middle") for count in counts]
    parts.append(text("workers", (left + right) / 2, FLOOR + 40, anchor="middle"))
    ends = []
    for place, speeds in enumerate(of.values()):
        points = [(across(log2(each["workers"])), up(each["qps"] / first)) for each in speeds]
        drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline class="line {mode_class(place)}" points="{drawn}"/>')
        parts += [f'<circle class="{mode_class(place)}-fill" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in points]
        ends.append(points[-1][1] + 4.5)
    for place, (height, speeds) in enumerate(zip(apart(ends, 16, TOP, FLOOR), of.values(), strict=True)):
        gain = f"{speeds[-1]['qps'] / first:.1f}"
        parts.append(text(gain, right + 10, height, look=f"name {mode_class(place)}-fill"))
    return parts


def _legend(names: Sequence[str]) -> list[str]:
    parts = []
    for place, name in enumerate(names):
        x, y = 40 + 350 * (place % 3), HEIGHT + 10 + 22 * (place // 3)
        parts.append(f'<rect class="{mode_class(place)}-fill" x="{x}" y="{y - 9}" width="14" height="10"/>')
        parts.append(f'<text x="{x + 22}" y="{y}">{escape(TITLES[name])}</text>')  # type: ignore[index]
    return parts
