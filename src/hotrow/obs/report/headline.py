"""The top of the page: what was trained, how good it is, how fast it went."""

from dataclasses import dataclass

from markupsafe import Markup

from hotrow.obs.report import formatting
from hotrow.obs.report.folder import ReportInputs
from hotrow.obs.report.rendering import render
from hotrow.obs.report.run import Record, RunRecord, epoch, number, text

CLASSES, NUMBERS = ("auc", "logloss"), ("rmse", "mae")  # the figures of a classification, and of a regression
SPLITS = {"test": "Test", "valid": "Validation", "progressive": "Progressive"}  # the first that was measured is shown


@dataclass(frozen=True, slots=True)
class Quality:
    """The figures that stand for the run: of the last evaluation, or the mean over days where days were tested."""

    split: str
    figures: dict[str, float | None]  # by the names of metrics: two of them
    days: int  # 0: one evaluation of the whole split


def header(folder: ReportInputs) -> Markup:
    """Name, date, the large figures, and one sentence."""
    run = folder.run
    quality = quality_of(run)
    model = text(run.start, "model")
    sentences = (_story(run), _about_quality(quality), folder.missing.get("events.jsonl"))
    return render(
        "obs/report/templates/headline.html",
        name=folder.name,
        under=" · ".join(filter(None, (model, formatting.date(run.started), _state(run)))),
        figures=_figures(run, quality),
        sentences=[sentence for sentence in sentences if sentence],
    )


def quality_of(run: RunRecord) -> Quality | None:
    """What the headline shows; None before the first evaluation."""
    for split in SPLITS:
        mine = [event for event in run.evaluations if event.get("split") == split]
        whole = [event for event in mine if event.get("day") is None]
        chosen = whole[-1:] or mine
        if chosen:
            figures = {name: _mean(chosen, name) for name in headline_metrics(run)}
            return Quality(split, figures, days=0 if whole else len(chosen))
    return None


def headline_metrics(run: RunRecord) -> tuple[str, str]:
    """The two metrics that stand for the run."""
    return NUMBERS if any("rmse" in metrics_of(event) for event in run.evaluations) else CLASSES


def metrics_of(event: Record) -> Record:
    """The metrics of an evaluation; a damaged log may hold none."""
    found = event.get("metrics")
    return found if isinstance(found, dict) else {}


def metric_word(metric: str) -> str:
    """As people write it."""
    return {"auc": "AUC", "rmse": "RMSE", "mae": "MAE", "r2": "R2"}.get(metric, metric.replace("_", " "))


def speed_of(run: RunRecord) -> float | None:
    """Samples per second: the run's own figure at its end, before that the mean of its reports."""
    told = number(run.end, "samples_per_s")
    reported = [rate for event in run.progress if (rate := number(event, "samples_per_s")) is not None]
    return told if told is not None else (sum(reported) / len(reported) if reported else None)


def _mean(evaluations: list[Record], name: str) -> float | None:
    """By rows, over those evaluations that have the figure."""
    found = [(number(event, "metrics", name), number(event, "rows")) for event in evaluations]
    known = [(value, 1 if rows is None else rows) for value, rows in found if value is not None]
    total = sum(rows for _, rows in known)
    return sum(value * rows for value, rows in known) / total if total else None


def _figures(run: RunRecord, quality: Quality | None) -> list[tuple[str, str]]:
    split = SPLITS[quality.split] if quality else "Test"
    figures = quality.figures if quality else dict.fromkeys(headline_metrics(run))
    return [
        *((f"{split} {metric_word(name)}", formatting.figure(value)) for name, value in figures.items()),
        ("Samples per second", formatting.short(speed_of(run))),
        ("Samples trained", formatting.short(run.samples)),
        ("Time", formatting.duration(_seconds(run))),
    ]


def _seconds(run: RunRecord) -> float | None:
    told = number(run.end, "seconds")
    if told is not None or run.started is None or run.last_time is None:
        return told
    return max(0.0, run.last_time - run.started)


def _state(run: RunRecord) -> str | None:
    if run.end is not None:
        return text(run.end, "stopped") or "finished"
    return "not finished" if run.start is not None else None


def _story(run: RunRecord) -> str | None:
    parts = []
    best, value = (run.end or {}).get("best"), number(run.end, "best", "value")
    if value is not None:
        split, metric = text(best, "split") or "valid", text(best, "metric") or "figure"
        found = epoch(best)
        where = "" if found is None else f", in epoch {found:,.0f}"
        parts.append(
            f"Best {SPLITS.get(split, split).lower()} {metric_word(metric)}: {formatting.figure(value)}{where}."
        )
    if run.resumed:
        parts.append(
            f"The run was resumed {formatting.plural(run.resumed, 'time')}; time and speed are those since then."
        )
    if run.start is not None and run.end is None:
        last = formatting.date(run.last_time)
        parts.append(f"The run has not written its end: it is training, or was killed. Last event: {last}.")
    return " ".join(parts) or None


def _about_quality(quality: Quality | None) -> str | None:
    if quality is None:
        return "No evaluation was written yet, so there is no measure of quality."
    if quality.days:
        words = " and ".join(map(metric_word, quality.figures))
        return f"{words} are means over {formatting.plural(quality.days, 'day')}, weighted by samples."
    if quality.split != "test":
        return f"No test was written: the figures are those of the {SPLITS[quality.split].lower()} samples."
    return None
