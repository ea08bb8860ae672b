"""How the run went: loss, quality, speed and waiting over samples; quality day by day; all evaluations as a table.

Quality is the AUC of a classification, and the RMSE of a regression.
"""

from collections.abc import Iterable
from typing import Any

from markupsafe import Markup

from hotrow.obs.report import formatting
from hotrow.obs.report.charts import axis, chart, line, missing, points, samples_axis
from hotrow.obs.report.headline import NUMBERS, SPLITS, headline_metrics, metric_word
from hotrow.obs.report.rendering import render
from hotrow.obs.report.run import Record, RunRecord, columns, epoch, number

COLORS = {"valid": "--orange", "test": "--green", "progressive": "--purple"}
OF_CLASSES = {"auc": "AUC", "logloss": "logloss", "normalised_entropy": "norm. entropy", "calibration": "calibration"}
OF_NUMBERS = {"rmse": "RMSE", "mae": "MAE", "r2": "R2", "bias": "bias"}
NORMALISED_ENTROPY = (
    "norm. entropy: the logloss divided by that of predicting the mean label for every row; 1 is no better than that."
)
ROWS_MOST = 200  # of the table of evaluations
NO_PROGRESS = "The run has written no progress yet."
HOVER = "%{y:.4f} at %{x:,d} samples"


def curves(run: RunRecord) -> Markup:
    """The section."""
    evaluations = run.evaluations
    metrics = _metrics(run)
    rows = [_cells(event, metrics) for event in evaluations[-ROWS_MOST:]]
    hidden = len(evaluations) - len(rows)
    return render(
        "obs/report/templates/curves.html",
        pictures=[_loss(run), _quality(run), _calibration(run), _speed(run), _waiting(run), _days(run)],
        evaluations=formatting.count(len(evaluations)),
        hidden=formatting.count(hidden) if hidden else None,
        titles=["split", "epoch", "day", "samples", "rows", *metrics.values()],
        rows=rows,
        note=NORMALISED_ENTROPY if "normalised_entropy" in metrics else None,
    )


def _loss(run: RunRecord) -> Markup:
    title = "Loss"
    if headline_metrics(run) == NUMBERS:
        traces, unit = _trained(run, "loss"), "loss"
        note = "The mean over the samples since the report before."
    else:
        traces, unit = [*_trained(run, "loss"), *_measured(run, "logloss")], "logloss"
        note = "Logloss in nats: the mean over the samples since the report before, and of each evaluation."
    if not traces:
        return missing(title, NO_PROGRESS)
    return chart(title, note, traces, xaxis=samples_axis(), yaxis=axis(unit))


def _quality(run: RunRecord) -> Markup:
    if headline_metrics(run) != NUMBERS:
        return _auc(run)
    traces = _measured(run, "rmse")
    if not traces:
        return missing("RMSE", "No evaluation over all samples was written.")
    return chart("RMSE", "Of each evaluation.", traces, xaxis=samples_axis(), yaxis=axis("RMSE"))


def _auc(run: RunRecord) -> Markup:
    title = "AUC"
    traces = [*_trained(run, "auc"), *_measured(run, "auc")]
    if not traces:
        return missing(title, NO_PROGRESS)
    seen = any((epoch(event) or 1) > 1 for event in run.progress)
    again = " From the second epoch on it has seen them before." if seen else ""
    note = f"Of training: from the predictions made just before the samples were learned.{again}"
    worst = max((number(event, "auc_error") or 0.0 for event in [*run.progress, *run.evaluations]), default=0.0)
    note += f" From sketches of several trainers: no AUC is wrong by more than {worst:.0e}." if worst else ""
    return chart(title, note, traces, xaxis=samples_axis(), yaxis=axis("AUC"))


def _calibration(run: RunRecord) -> Markup | None:
    """None of a regression, and where no report has it."""
    traces = [*_trained(run, "calibration"), *_measured(run, "calibration")]
    if headline_metrics(run) == NUMBERS or not traces:
        return None
    note = "Mean prediction over mean label; 1 is right. Of training: from the same predictions as the AUC."
    return chart("Calibration over samples", note, traces, xaxis=samples_axis(), yaxis=axis("calibration"))


def _speed(run: RunRecord) -> Markup:
    title = "Samples per second"
    x, y = columns(run.progress, "samples", "samples_per_s")
    if not x:
        return missing(title, NO_PROGRESS)
    trace = line("samples/s", x, y, "--blue", hovertemplate="%{y:,.0f} samples/s<extra></extra>")
    up = axis("samples/s", tickformat="~s", rangemode="tozero")
    return chart(title, "Between one report and the next.", [trace], xaxis=samples_axis(), yaxis=up)


def _waiting(run: RunRecord) -> Markup:
    title = "Waiting for data"
    x, y = columns(run.progress, "samples", "reading_share")
    if not x:
        return missing(title, NO_PROGRESS)
    trace = line("waiting", x, y, "--blue", hovertemplate="%{y:.1%}<extra></extra>", fill="tozeroy", fillcolor="--wash")
    up = axis("part of the time", tickformat=".0%", range=[0, max(0.1, *y) * 1.05])
    note = "Near 0 the reader keeps up with the training; a large part means that the reader is the brake."
    return chart(title, note, [trace], xaxis=samples_axis(), yaxis=up)


def _days(run: RunRecord) -> Markup | None:
    """Day by day, where evaluations belong to days."""
    traces = []
    metric = headline_metrics(run)[0]
    title = metric_word(metric)
    for split, word in SPLITS.items():
        mine = [event for event in run.evaluations if event.get("split") == split and event.get("day") is not None]
        known = [(event, value) for event in mine if (value := number(event, "metrics", metric)) is not None]
        if known:
            rows = [formatting.count(number(event, "rows")) for event, _ in known]
            days = [_day(event) for event, _ in known]
            hover = "%{y:.4f} on %{customdata} samples<extra>day %{x}</extra>"
            values = [value for _, value in known]
            traces.append(points(word, days, values, COLORS[split], customdata=rows, hovertemplate=hover))
    if not traces:
        return None
    note = "One evaluation each."
    note += " A day without clicks, or with nothing else, has no AUC and no point." if metric == "auc" else ""
    return chart(f"{title} day by day", note, traces, wide=True, xaxis=axis("day", showgrid=False), yaxis=axis(title))


def _day(event: Record) -> float | str:
    found = number(event, "day")
    return formatting.plain_text(event["day"]) if found is None else found


def _trained(run: RunRecord, name: str) -> list[dict[str, Any]]:
    x, y = columns(run.progress, "samples", name)
    return [line("training", x, y, "--blue", hovertemplate=HOVER)] if x else []


def _measured(run: RunRecord, name: str) -> list[dict[str, Any]]:
    """A line of points for each split; days have a picture of their own."""
    traces = []
    for split, word in reversed(SPLITS.items()):
        mine = [event for event in run.evaluations if event.get("split") == split and event.get("day") is None]
        x, y = columns(mine, "samples", ("metrics", name))
        if x:
            traces.append(points(word.lower(), x, y, COLORS[split], hovertemplate=HOVER))
    return traces


def _metrics(run: RunRecord) -> dict[str, str]:
    """The metrics in the table of evaluations, with their titles."""
    shown = OF_NUMBERS if headline_metrics(run) == NUMBERS else OF_CLASSES
    grouped = any(number(event, "metrics", "grouped_auc") is not None for event in run.evaluations)
    return shown | ({"grouped_auc": "grouped AUC"} if grouped else {})


def _cells(event: Record, metrics: Iterable[str]) -> list[str]:
    return [
        formatting.plain_text(event.get("split")),
        formatting.count(epoch(event) if event.get("split") == "valid" else None),  # the others are made after training
        formatting.plain_text(event.get("day")),
        formatting.count(number(event, "samples")),
        formatting.count(number(event, "rows")),
        *(_cell(event, name) for name in metrics),
    ]


def _cell(event: Record, metric: str) -> str:
    value = number(event, "metrics", metric)
    return formatting.auc(value, number(event, "auc_error")) if metric == "auc" else formatting.figure(value)
