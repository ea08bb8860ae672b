"""Staleness histograms, one for each mode: how many steps late gradients were, and ids where there are any."""

from collections.abc import Mapping, Sequence
from math import ceil, floor, log10

from hotrow.sim.study.outcome import Outcome
from hotrow.sim.study.picture.drawing import LEFT, WIDTH, mode_class, round_up, text
from hotrow.staleness import Histogram

ACROSS, GAP = 3, 64  # histograms in a row, and pixels between them
HEIGHT, HEAD, FLOOR = 212, 44, 170
BINS = 24


def lateness_part(outcomes: Sequence[Outcome]) -> tuple[list[str], int]:
    """Drawing and height."""
    histograms = [_histograms(each) for each in outcomes]
    shares = [share for each in histograms for one in each.values() for share in binned(one, 1).values()]
    if not shares:
        return [], 0
    lowest = floor(log10(min(shares)) + 1e-9)
    beside = dict.fromkeys(name for each in histograms for name in list(each)[1:])
    lighter = f"; lighter: of {' and '.join(beside)}" if beside else ""
    parts = [
        text("How late gradients were", LEFT, 18, look="head"),
        text(f"share of all gradients (logarithmic) over staleness in steps{lighter}", LEFT, 36, look="small"),
    ]
    width = (WIDTH - LEFT - 28 - (ACROSS - 1) * GAP) / ACROSS
    for place, (outcome, own) in enumerate(zip(outcomes, histograms, strict=True)):
        x = LEFT + (place % ACROSS) * (width + GAP)
        y = 46 + (place // ACROSS) * HEIGHT
        drawn = _histogram(outcome, own, place, width, lowest)
        parts.append(f'<g transform="translate({x:.1f} {y})">{"".join(drawn)}</g>')
    return parts, 46 + ceil(len(outcomes) / ACROSS) * HEIGHT + 8


def _histograms(outcome: Outcome) -> dict[str, Histogram]:
    """By what is late, those that have anything in them."""
    found = {"gradients": outcome.result.statistics.gradient}
    if outcome.result.statistics.rows.total:
        found["rows"] = outcome.result.statistics.rows
    if outcome.ids is not None:
        found["ids"] = outcome.ids
    return {name: histogram for name, histogram in found.items() if histogram.total}


def binned(histogram: Histogram, width: int) -> dict[int, float]:
    """Shares of bins of `width` values, by the first of them."""
    total = histogram.total
    shares: dict[int, float] = {}
    for value, count in histogram.counts.items():
        start = value // width * width
        shares[start] = shares.get(start, 0.0) + count / total
    return shares


def _histogram(outcome: Outcome, own: Mapping[str, Histogram], place: int, width: float, lowest: int) -> list[str]:
    parts = [text(outcome.label, 0, 14, look=f"name {mode_class(place)}-fill")]
    means = ", ".join(f"{name} {each.mean:,.2f} (max {each.largest:,})" for name, each in own.items())
    parts.append(text(f"mean of {means}" if means else "no step was made", 0, 30, look="small"))
    largest = max((each.largest or 0 for each in own.values()), default=0)
    bin_width = int(round_up((largest + 1) / BINS)) or 1
    bins = max(8, ceil((largest + 1) / bin_width))
    step = width / bins
    parts += _axes(width, lowest, step, bins, bin_width)
    bar = (step - min(2.0, step / 5)) / max(1, len(own))
    for number, (name, histogram) in enumerate(own.items()):
        for start, share in binned(histogram, bin_width).items():
            top = _height(share, lowest)
            x = start // bin_width * step + number * bar
            faint = "" if number == 0 else ' opacity="0.45"'
            title = f"<title>{name}: {100 * share:.3g} % {_range(start, bin_width)} steps late</title>"
            parts.append(
                f'<rect class="{mode_class(place)}-fill" x="{x:.2f}" y="{top:.1f}" width="{max(bar, 0.5):.2f}" '
                f'height="{FLOOR - top:.1f}"{faint}>{title}</rect>'
            )
    return parts


def _axes(width: float, lowest: int, step: float, bins: int, bin_width: int) -> list[str]:
    parts = []
    for power in range(0, lowest - 1, -2 if lowest < -3 else -1):
        y = _height(10.0**power, lowest)
        parts.append(f'<line class="grid" x1="0" x2="{width:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(text(f"{100 * 10.0**power:g} %", -6, y + 4, look="small", anchor="end"))
    parts.append(f'<line class="axis" x1="0" x2="{width:.1f}" y1="{FLOOR}" y2="{FLOOR}"/>')
    every = int(round_up(bins / 6)) or 1
    for number in range(0, bins, every):
        x = number * step + (step / 2 if bin_width == 1 else 0)
        parts.append(text(f"{number * bin_width:,}", x, FLOOR + 16, look="small", anchor="middle"))
    return parts


def _height(share: float, lowest: int) -> float:
    """Logarithmic, from just below the rarest share up to 1."""
    low = lowest - 0.5
    return FLOOR - (log10(share) - low) / -low * (FLOOR - HEAD)


def _range(start: int, width: int) -> str:
    return f"{start}" if width == 1 else f"{start} to {start + width - 1}"
