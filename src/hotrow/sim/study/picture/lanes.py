"""Lanes of workers: what each does in the first seconds, and when steps are made."""

from collections.abc import Sequence
from statistics import median

from hotrow.sim import Lane
from hotrow.sim.study.config import SimulationConfig
from hotrow.sim.study.outcome import Outcome, title_of
from hotrow.sim.study.picture.drawing import LEFT, RIGHT, WIDTH, AxisScale, TimeUnit, mode_class, text, time_axis

ROW, BAR = 11, 9  # pixels from one worker to the next, and of a lane
HEAD = 46  # above the lanes of a mode
BATCHES, STEPS = 8, 4  # of every mode, in the default time that is shown
STEPS_AS_LINES, STEPS_AS_TICKS = 40, 400
KINDS = {"compute": "computes", "wait": "waits", "pull": "reads", "push": "sends", "down": "is down"}
LETTER = 6.4  # pixels of the legend's


def lanes_part(outcomes: Sequence[Outcome], config: SimulationConfig) -> tuple[list[str], int]:
    """Drawing and height."""
    shown_s = window_s(outcomes, config.picture.seconds)
    if shown_s is None:
        return [], 0
    unit = TimeUnit.of(shown_s)
    across = AxisScale(0, shown_s / unit.seconds, LEFT, WIDTH - RIGHT)
    parts = [text("Activity of the first workers at the start", LEFT, 18, look="head"), *_legend()]
    y = 42
    for place, outcome in enumerate(outcomes):
        drawn, height = _mode(outcome, place, config.picture.workers, shown_s, across, unit)
        parts.append(f'<g transform="translate(0 {y})">{"".join(drawn)}</g>')
        y += height
    parts += time_axis(across, y + 4, unit, "virtual time")
    return parts, y + 70


def window_s(outcomes: Sequence[Outcome], wanted_s: float | None) -> float | None:
    """The length of the shown period: at most what the lanes of every mode cover. None: there are no lanes."""
    known = [each.result for each in outcomes if each.result.lanes]
    if not known:
        return None
    ends_s = [max(lane.end_s for lane in each.lanes) for each in known]
    cut_s = [end_s for end_s, each in zip(ends_s, known, strict=True) if each.lanes_left_out]
    batches_s = BATCHES * max(_batch_s(each.lanes) for each in known)
    steps_s = max((each.stepped_s[:STEPS][-1] for each in outcomes if each.stepped_s), default=0.0)
    return min([wanted_s or max(batches_s, steps_s), max(ends_s), *cut_s])


def _batch_s(lanes: Sequence[Lane]) -> float:
    computing = [lane.end_s - lane.start_s for lane in lanes if lane.kind == "compute"]
    return median(computing) if computing else max(lane.end_s for lane in lanes)


def _legend() -> list[str]:
    """From the right edge to the left."""
    x = WIDTH - RIGHT - LETTER * len("a step")
    parts = [
        f'<line class="step" x1="{x - 6:.1f}" x2="{x - 6:.1f}" y1="6" y2="20"/>',
        text("a step", x, 17, look="small"),
    ]
    for kind, word in reversed(KINDS.items()):
        x -= LETTER * len(word) + 44
        parts.append(f'<rect class="{kind}" x="{x - 19:.1f}" y="8" width="14" height="10" rx="1.5"/>')
        parts.append(text(word, x, 17, look="small"))
    return parts


def _mode(
    outcome: Outcome, place: int, most: int, shown_s: float, across: AxisScale, unit: TimeUnit
) -> tuple[list[str], int]:
    workers = min(most, outcome.facts.workers)
    bottom = HEAD + workers * ROW
    of_all = f"workers 0 to {workers - 1} of {outcome.facts.workers:,}, local batch {outcome.facts.local_batch:,}"
    parts = [
        text(outcome.label, LEFT, HEAD - 24, look=f"name {mode_class(place)}-fill"),
        text(f"{title_of(outcome.mode)}; {of_all}", LEFT, HEAD - 8, look="small"),
    ]
    parts += [
        text(str(number), LEFT - 10, HEAD + number * ROW + BAR, look="small", anchor="end")
        for number in range(0, workers, 5)
    ]
    parts += [
        _bar(lane, across, unit, shown_s)
        for lane in outcome.result.lanes
        if lane.worker < workers and lane.start_s < shown_s
    ]
    steps = [time_s for time_s in outcome.stepped_s if time_s <= shown_s]
    parts += _steps(steps, across, unit, bottom)
    message = f"{len(steps):,} {'step' if len(steps) == 1 else 'steps'}"
    parts.append(text(message, WIDTH - RIGHT + 10, HEAD + BAR, look="small"))
    return parts, bottom + 6


def _bar(lane: Lane, across: AxisScale, unit: TimeUnit, shown_s: float) -> str:
    start, end = across(lane.start_s / unit.seconds), across(min(lane.end_s, shown_s) / unit.seconds)
    gap = 0.6 if end - start > 2 else 0.0  # separates two batches in a row
    y = HEAD + lane.worker * ROW
    return f'<rect class="{lane.kind}" x="{start:.2f}" y="{y}" width="{end - start - gap:.2f}" height="{BAR}"/>'


def _steps(steps: Sequence[float], across: AxisScale, unit: TimeUnit, bottom: int) -> list[str]:
    """Lines through all lanes where there is room for them, else ticks above; too many are only counted."""
    if len(steps) > STEPS_AS_TICKS:
        return []
    low = bottom - 1 if len(steps) <= STEPS_AS_LINES else HEAD - 1
    places = [across(time_s / unit.seconds) for time_s in steps]
    return [f'<line class="step" x1="{x:.1f}" x2="{x:.1f}" y1="{HEAD - 5}" y2="{low}"/>' for x in places]
