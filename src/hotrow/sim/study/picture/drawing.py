"""Common parts of the picture: scales, texts, colours of the modes, light and dark."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 1080
LEFT, RIGHT = 76, 176  # margins of a plot; lines are named at their right end instead of in a legend
MODES = ("#2460c4", "#c25e12", "#0f8a86", "#7a4fbb", "#b5344a", "#6f7d1a", "#86602f", "#6b7482")
MODES_DARK = ("#74a9ff", "#f2a25c", "#5cc9c4", "#bb9bf2", "#f08c9c", "#bccb5e", "#d0aa74", "#a2a9b4")
KINDS = {"compute": "#5b8fdc", "wait": "#e6e8ec", "pull": "#35a29f", "push": "#e39a4a", "down": "#c94b5f"}
KINDS_DARK = {"compute": "#4a7fd0", "wait": "#2b3038", "pull": "#2f9a96", "push": "#d98b38", "down": "#c24559"}


def style() -> str:
    """Everything under `svg.sim`, so that a page around it stays as it is."""
    look = """
  svg.sim text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, Helvetica, Arial, sans-serif;
    font-size: 13px; fill: #5d6570 }
  svg.sim .paper { fill: #ffffff } svg.sim .title { font-size: 20px; font-weight: 650; fill: #1d2126 }
  svg.sim .head { font-size: 15px; font-weight: 600; fill: #1d2126 } svg.sim .name { font-weight: 600 }
  svg.sim .small { font-size: 11.5px }
  svg.sim .grid { stroke: #e2e4e8 } svg.sim .axis { stroke: #8b94a1 } svg.sim .step { stroke: #1d2126; opacity: 0.55 }
  svg.sim .line { fill: none; stroke-width: 2; stroke-linejoin: round } svg.sim .load { fill: #86602f }
  svg.sim .switch { stroke-dasharray: 4 4 }"""
    dark = """
    svg.sim text { fill: #a2a9b4 } svg.sim .paper { fill: #1b1e23 } svg.sim .title, svg.sim .head { fill: #e8eaed }
    svg.sim .grid { stroke: #343941 } svg.sim .axis { stroke: #6b7482 } svg.sim .step { stroke: #e8eaed }
    svg.sim .load { fill: #d0aa74 }"""
    light, at_night = _colours(MODES, KINDS), _colours(MODES_DARK, KINDS_DARK)
    return f"{look}\n{light}\n  @media (prefers-color-scheme: dark) {{{dark}\n{at_night} }}"


def _colours(modes: Sequence[str], kinds: dict[str, str]) -> str:
    rules = [
        f"  svg.sim .m{place} {{ stroke: {colour} }} svg.sim .m{place}-fill {{ fill: {colour} }}"
        for place, colour in enumerate(modes)
    ]
    rules += [f"  svg.sim .{kind} {{ fill: {colour} }}" for kind, colour in kinds.items()]
    return "\n".join(rules)


def mode_class(place: int) -> str:
    """The colour of the mode at a place, the same in every part."""
    return f"m{place % len(MODES)}"


@dataclass(frozen=True, slots=True)
class AxisScale:
    """A straight scale onto pixels."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, most: int = 6) -> list[float]:
        """Round numbers, at most so many and one more."""
        step = round_up((self.high - self.low) / most)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]


def round_up(value: float) -> float:
    """1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(digit * power for digit in (1, 2, 5, 10) if digit * power >= value * (1 - 1e-9))


@dataclass(frozen=True, slots=True)
class TimeUnit:
    """The unit of seconds on an axis."""

    seconds: float
    name: str

    @classmethod
    def of(cls, span_s: float) -> "TimeUnit":
        """The one that gives a handful of whole numbers."""
        units = ((3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"), (1e-3, "milliseconds"))
        return next((cls(size, name) for size, name in units if span_s >= 3 * size), cls(1e-6, "microseconds"))


def time_axis(scale: AxisScale, floor: float, unit: TimeUnit, title: str) -> list[str]:
    """Ticks and numbers below a plot. The scale is in units."""
    parts = [f'<line class="axis" x1="{scale.start:.1f}" x2="{scale.end:.1f}" y1="{floor}" y2="{floor}"/>']
    for value in scale.ticks(8):
        x = scale(value)
        parts.append(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{floor}" y2="{floor + 5}"/>')
        parts.append(text(f"{value:g}", x, floor + 20, anchor="middle"))
    parts.append(text(f"{title}, {unit.name}", (scale.start + scale.end) / 2, floor + 40, anchor="middle"))
    return parts


def text(words: str, x: float, y: float, *, look: str = "", anchor: str = "start") -> str:
    """A line of text."""
    given = f' class="{look}"' if look else ""
    where = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text{given} x="{x:.1f}" y="{y:.1f}"{where}>{escape(words)}</text>'


def short(value: float) -> str:
    """1.5 M"""
    for unit, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= unit * 0.9995:
            return f"{value / unit:.3g}{letter}"
    return f"{value:.3g}"


def apart(wanted: Sequence[float], gap: float, lowest: float, highest: float) -> list[float]:
    """Heights near those wanted, in their order, none closer to the next than a gap."""
    order = sorted(range(len(wanted)), key=lambda place: wanted[place])
    found = list(wanted)
    edge = lowest - gap
    for place in order:
        edge = found[place] = max(found[place], edge + gap)
    edge = highest + gap
    for place in reversed(order):  # back up, where the last ones left the picture
        edge = found[place] = min(found[place], edge - gap)
    return found
