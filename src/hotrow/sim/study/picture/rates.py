"""Samples per second over virtual time, a line for each mode; below it the load of the day, where there is one."""

from collections.abc import Sequence

from hotrow.sim import Load
from hotrow.sim.study.outcome import Outcome
from hotrow.sim.study.picture.drawing import (
    LEFT,
    RIGHT,
    WIDTH,
    AxisScale,
    TimeUnit,
    apart,
    mode_class,
    short,
    text,
    time_axis,
)

HEIGHT, TOP, FLOOR = 350, 44, 290
STRIPS = 120  # of the load


def rates_part(outcomes: Sequence[Outcome], load: Load | None) -> tuple[list[str], int]:
    """Drawing and height."""
    lines = [_line(each) for each in outcomes]
    end_s = max(each.result.seconds for each in outcomes)
    most = max([rate for line in lines for _, rate in line] + [each.result.qps for each in outcomes] + [1e-9])
    unit = TimeUnit.of(end_s)
    across = AxisScale(0, max(end_s, 1e-9) / unit.seconds, LEFT, WIDTH - RIGHT)
    up = AxisScale(0, most * 1.05, FLOOR, TOP + 20)
    parts = [text("Samples applied per second", LEFT, 18, look="head"), *_grid(up)]
    if load is not None:
        parts += _load(load, across, unit)
    parts += time_axis(across, FLOOR, unit, "virtual time")
    for place, (outcome, line) in enumerate(zip(outcomes, lines, strict=True)):
        parts += _switches(outcome, place, across, unit)
        points = " ".join(f"{across(time_s / unit.seconds):.1f},{up(rate):.1f}" for time_s, rate in line)
        parts.append(f'<polyline class="line {mode_class(place)}" points="{points}"/>')
    return [*parts, *_names(outcomes, lines, up)], HEIGHT


def _line(outcome: Outcome) -> list[tuple[float, float]]:
    """The rates; the mean, where the run is too short to have any."""
    rates = outcome.rates
    if len(rates) > 1:
        return rates
    return [(0.0, outcome.result.qps), (outcome.result.seconds, outcome.result.qps)]


def _grid(up: AxisScale) -> list[str]:
    parts = []
    for value in up.ticks(5):
        y = up(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(text(short(value), LEFT - 10, y + 4.5, anchor="end"))
    return parts


def _load(load: Load, across: AxisScale, unit: TimeUnit) -> list[str]:
    """How much pressure there is, as a strip that is the darker the fuller the cluster is."""
    step = (across.high - across.low) / STRIPS
    width = (across.end - across.start) / STRIPS
    strips = []
    for number in range(STRIPS):
        pressure = load.pressure((across.low + (number + 0.5) * step) * unit.seconds)
        x = across.start + number * width
        strips.append(
            f'<rect class="load" x="{x:.2f}" y="{FLOOR - 12}" width="{width:.2f}" height="12" '
            f'opacity="{0.05 + 0.55 * pressure:.2f}" shape-rendering="crispEdges"/>'
        )
    return [*strips, text("load of the day", WIDTH - RIGHT + 10, FLOOR - 2, look="small")]


def _switches(outcome: Outcome, place: int, across: AxisScale, unit: TimeUnit) -> list[str]:
    parts = []
    for number, began in enumerate(outcome.began[1:]):
        x = across(began.time_s / unit.seconds)
        look = mode_class(place)
        parts.append(f'<line class="switch {look}" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP + 2}" y2="{FLOOR}"/>')
        near_the_end = x > WIDTH - RIGHT - 170
        where = (x - 5, "end") if near_the_end else (x + 5, "start")
        message = f"{outcome.label}: to {began.title.split(',')[0]}"
        parts.append(text(message, where[0], TOP + 8 - 13 * (number % 2), look=f"small {look}-fill", anchor=where[1]))
    return parts


def _names(outcomes: Sequence[Outcome], lines: Sequence[Sequence[tuple[float, float]]], up: AxisScale) -> list[str]:
    """Beside the ends of the lines, with the mean over the whole run, pushed apart where they would touch."""
    wanted = [up(sum(rate for _, rate in line) / len(line)) + 4.5 for line in lines]
    heights = apart(wanted, 19, TOP + 10, FLOOR - 20)
    return [
        f'<text x="{WIDTH - RIGHT + 10}" y="{height:.1f}"><tspan class="name {mode_class(place)}-fill">'
        f"{text_of(outcome.label)}</tspan> {short(outcome.result.qps)}</text>"
        for place, (outcome, height) in enumerate(zip(outcomes, heights, strict=True))
    ]


def text_of(label: str) -> str:
    """A label that fits beside a line, safe for markup."""
    cut = label if len(label) <= 14 else f"{label[:13]}…"
    return cut.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
