"""The mode and how late gradients were: modes as the run went, histograms of staleness, and what became of batches."""

from collections import Counter
from typing import Any, TypeAlias

from markupsafe import Markup

from hotrow.obs.report import formatting
from hotrow.obs.report.charts import SERIES, Trace, axis, chart, plain, samples_axis
from hotrow.obs.report.rendering import render
from hotrow.obs.report.run import Record, RunRecord, columns, number, text

Bars: TypeAlias = list[tuple[float, float]]  # value, how often

BARS_MOST = 30  # of a histogram; with more each bar is a span
LINES_MOST = 50  # of what was said
ALWAYS = {"granted": "Batches begun", "applied": "Batches applied", "short_steps": "Short steps"}
COUNTS = {
    "parked": "Waits for others",
    "decayed": "Decayed gradients",
    "zero_weight": "Of weight 0",
    "ids_decayed": "Decayed ids",
    "ids_zero_weight": "Ids of weight 0",
    "duplicates": "Came twice",
    "after_loss": "Came after a loss",
}
DROPPED = {"late": "Dropped as late", "lost": "Lost with a worker", "rollback": "Rolled back"}
PICTURES = {
    "Staleness of dense gradients": {"gradient": "since the pull", "data": "behind the token"},
    "Staleness of rows": {"ids": "of each id", "rows": "since the lookup"},
}


def modes(run: RunRecord) -> Markup:
    """The section."""
    last = run.statistics[-1] if run.statistics else None
    pictures, never = _pictures(run, last)
    said = _said(run)
    hidden = len(said) - LINES_MOST
    return render(
        "obs/report/templates/mode.html",
        trained=_facts(run) if run.modes else None,
        counts=_what_became(last),
        never=" and ".join(never),
        pictures=pictures,
        said=[(formatting.count(samples), what) for samples, what in said[:LINES_MOST]],
        hidden=formatting.count(hidden) if hidden > 0 else None,
    )


def _facts(run: RunRecord) -> str:
    """Modes, workers and batches; the last two as they were when the run began or was resumed."""
    names = " and ".join(dict.fromkeys(text(event, "mode") or "unknown" for event in run.modes))
    begun = [event for event in run.modes if number(event, "workers") is not None]
    if not begun:
        return f"Trained in {names}."
    workers, local, whole = (number(begun[-1], name) for name in ("workers", "local_batch", "global_batch"))
    chosen = ", chosen as it went," if text(begun[-1], "chosen") == "auto" else ""
    batches = f"batches of {formatting.count(local)} samples each, {formatting.count(whole)} in a global batch"
    message = f"Trained in {names}{chosen} by {formatting.plural(workers or 0, 'worker')}{_where(run)}: {batches}."
    return f"{message} Counts are those since the run was resumed." if run.resumed else message


def _where(run: RunRecord) -> str:
    """The engine and how many there were of each role, where it was a cluster."""
    began = run.last_start or {}
    engine, roles = text(began, "engine"), began.get("roles")
    if engine is None or not isinstance(roles, dict) or not roles:
        return ""
    kinds = Counter(str(name).rstrip("0123456789").strip() or name for name in roles)
    *first, last = (formatting.plural(count, kind) for kind, count in kinds.items())
    return f" on {engine} ({', '.join(first)} and {last})" if first else f" on {engine} ({last})"


def _what_became(statistics: Record | None) -> list[tuple[str, str]]:
    if statistics is None:
        return []
    shown = {word: number(statistics, key) for key, word in ALWAYS.items()}
    rest = {word: number(statistics, key) for key, word in COUNTS.items()}
    rest |= {word: number(statistics, "dropped", key) for key, word in DROPPED.items()}
    shown |= {word: value for word, value in rest.items() if value}
    return [(word, formatting.count(value)) for word, value in shown.items()]


def _pictures(run: RunRecord, statistics: Record | None) -> tuple[list[Markup], list[str]]:
    """Pictures, and what was never late, which has a sentence instead."""
    kept = {kind: _bars((statistics or {}).get(kind)) for kinds in PICTURES.values() for kind in kinds}
    drawn, never = [], []
    for title, kinds in PICTURES.items():
        known = {kind: kept[kind] for kind in kinds if kept[kind]}
        if any(value > 0 for bars in known.values() for value, _ in bars):
            drawn.append(_histogram(title, kinds, known, statistics))
        elif known:
            never.append(title.removeprefix("Staleness of "))
    course = _course(run)
    return ([course, *drawn] if course else drawn), never


def _course(run: RunRecord) -> Markup | None:
    """Which mode was at work when; only where there were several."""
    known = [(number(event, "samples"), text(event, "mode")) for event in run.modes]
    starts = [(start, name) for start, name in known if start is not None and name is not None]
    names = list(dict.fromkeys(name for _, name in starts))
    if len(names) < 2:
        return None
    ends = [start for start, _ in starts[1:]] + [max(run.samples or 0, starts[-1][0])]
    stretches = [(name, start, end) for (start, name), end in zip(starts, ends, strict=True) if end > start]
    traces = [
        _stretches(name, place, [(start, end) for other, start, end in stretches if other == name], color)
        for place, (name, color) in enumerate(zip(names, SERIES, strict=False))
    ]
    ticks = {"tickvals": list(range(len(names))), "ticktext": [plain(name) for name in names]}
    up = axis("", showgrid=False, range=[len(names) - 0.5, -0.5], **ticks)
    note = f"The mode was changed {formatting.plural(len(starts) - 1, 'time')}."
    return chart("Modes as the run went", note, traces, wide=True, barmode="overlay", xaxis=samples_axis(), yaxis=up)


def _stretches(name: str, place: int, mine: list[tuple[float, float]], color: str) -> Trace:
    return {
        "type": "bar", "orientation": "h", "name": plain(name), "width": 0.5, "marker": {"color": color},
        "y": [place] * len(mine), "base": [start for start, _ in mine], "x": [end - start for start, end in mine],
        "customdata": [[formatting.count(start), formatting.count(end)] for start, end in mine],
        "hovertemplate": "from %{customdata[0]} to %{customdata[1]} samples<extra>%{fullData.name}</extra>",
    }  # fmt: skip


def _histogram(title: str, kinds: dict[str, str], known: dict[str, Bars], statistics: Any) -> Markup:
    span = 1 + max(value for bars in known.values() for value, _ in bars) // BARS_MOST
    traces = [
        _shares(kinds[kind], bars, span, color) for (kind, bars), color in zip(known.items(), SERIES, strict=False)
    ]
    means = [f"{kinds[kind]} {_mean(statistics, kind)}" for kind in known]
    note = f"Mean and largest: {'; '.join(means)}. 0 is not late."
    across = axis("steps", showgrid=False, tickformat=",d")
    return chart(title, note, traces, xaxis=across, yaxis=axis("part of them", tickformat=".0%"), bargap=0.25)


def _shares(name: str, bars: Bars, span: float, color: str) -> Trace:
    """The part of all that is in each span of values."""
    total = sum(count for _, count in bars)
    heights: dict[float, float] = {}
    for value, count in bars:
        low = value // span * span
        heights[low] = heights.get(low, 0) + count / total
    lows = sorted(heights)
    told = [
        formatting.count(low) if span == 1 else f"{formatting.count(low)} to {formatting.count(low + span - 1)}"
        for low in lows
    ]
    return {
        "type": "bar", "name": plain(name), "x": lows, "y": [heights[low] for low in lows], "customdata": told,
        "marker": {"color": color}, "hovertemplate": "%{y:.1%} are %{customdata} late<extra>%{fullData.name}</extra>",
    }  # fmt: skip


def _mean(statistics: Any, kind: str) -> str:
    mean, largest = number(statistics, kind, "mean"), number(statistics, kind, "largest")
    return f"{formatting.NOTHING if mean is None else f'{mean:.2f}'} and {formatting.count(largest)}"


def _bars(histogram: Any) -> Bars:
    """Values with how often they came, from lists in a document."""
    lists = [histogram.get(name) for name in ("values", "counts")] if isinstance(histogram, dict) else []
    pairs = [list(pair) for pair in zip(*(each for each in lists if isinstance(each, list)), strict=False)]
    return [(value, count) for value, count in zip(*columns(pairs, 0, 1), strict=True) if value >= 0 and count > 0]


def _switch(event: Record) -> str:
    to = text(event, "sentence") or f"to {text(event, 'mode') or 'unknown'}"  # a controller's begins in the same way
    return f"from {text(event, 'before')} {to}"


def _said(run: RunRecord) -> list[tuple[float, str]]:
    """Why the mode was changed, and what is to be known of it, with the samples trained by then."""
    said = [(number(event, "samples") or 0, _switch(event)) for event in run.modes if text(event, "before")]
    said += [(number(event, "samples") or 0, text(event, "sentence") or "") for event in run.remarks]
    return sorted(said, key=lambda each: each[0])
