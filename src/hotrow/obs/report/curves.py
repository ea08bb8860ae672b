"""How the run went: loss, AUC, speed and waiting over samples; AUC day by day; all evaluations as a table."""

from typing import Any

from hotrow.obs.report import formatting
from hotrow.obs.report.charts import axis, chart, line, missing, points, samples_axis
from hotrow.obs.report.headline import SPLITS
from hotrow.obs.report.markup import Html, row, section, table, tag
from hotrow.obs.report.run import Record, RunRecord, columns, epoch, number

COLORS = {"valid": "--orange", "test": "--green", "progressive": "--purple"}
ROWS_MOST = 200  # of the table of evaluations
NO_PROGRESS = "The run has written no progress yet."
HOVER = "%{y:.4f} at %{x:,d} samples"


def curves(run: RunRecord) -> Html:
    """The section."""
    return section(
        "Curves",
        "curves",
        tag("div", _loss(run), _auc(run), _speed(run), _waiting(run), _days(run), class_="charts"),
        _table(run.evaluations),
    )


def _loss(run: RunRecord) -> Html:
    title = "Loss"
    traces = [*_trained(run, "loss"), *_measured(run, "logloss")]
    if not traces:
        return missing(title, NO_PROGRESS)
    note = "Logloss in nats: the mean over the samples since the report before, and of each evaluation."
    return chart(title, note, traces, xaxis=samples_axis(), yaxis=axis("logloss"))


def _auc(run: RunRecord) -> Html:
    title = "AUC"
    traces = [*_trained(run, "auc"), *_measured(run, "auc")]
    if not traces:
        return missing(title, NO_PROGRESS)
    seen = any((epoch(event) or 1) > 1 for event in run.progress)
    again = " From the second epoch on it has seen them before." if seen else ""
    note = f"Of training: from the predictions made just before the samples were learned.{again}"
    return chart(title, note, traces, xaxis=samples_axis(), yaxis=axis("AUC"))


def _speed(run: RunRecord) -> Html:
    title = "Samples per second"
    x, y = columns(run.progress, "samples", "samples_per_s")
    if not x:
        return missing(title, NO_PROGRESS)
    trace = line("samples/s", x, y, "--blue", hovertemplate="%{y:,.0f} samples/s<extra></extra>")
    up = axis("samples/s", tickformat="~s", rangemode="tozero")
    return chart(title, "Between one report and the next.", [trace], xaxis=samples_axis(), yaxis=up)


def _waiting(run: RunRecord) -> Html:
    title = "Waiting for data"
    x, y = columns(run.progress, "samples", "reading_share")
    if not x:
        return missing(title, NO_PROGRESS)
    trace = line("waiting", x, y, "--blue", hovertemplate="%{y:.1%}<extra></extra>", fill="tozeroy", fillcolor="--wash")
    up = axis("part of the time", tickformat=".0%", range=[0, max(0.1, *y) * 1.05])
    note = "Near 0 the reader keeps up with the training; a large part means that the reader is the brake."
    return chart(title, note, [trace], xaxis=samples_axis(), yaxis=up)


def _days(run: RunRecord) -> Html | None:
    """Day by day, where evaluations belong to days."""
    traces = []
    for split, word in SPLITS.items():
        mine = [event for event in run.evaluations if event.get("split") == split and event.get("day") is not None]
        known = [(event, value) for event in mine if (value := number(event, "metrics", "auc")) is not None]
        if known:
            rows = [formatting.count(number(event, "rows")) for event, _ in known]
            days = [_day(event) for event, _ in known]
            hover = "%{y:.4f} on %{customdata} samples<extra>day %{x}</extra>"
            aucs = [value for _, value in known]
            traces.append(points(word, days, aucs, COLORS[split], customdata=rows, hovertemplate=hover))
    if not traces:
        return None
    note = "One evaluation each. A day without clicks, or with nothing else, has no AUC and no point."
    return chart("AUC day by day", note, traces, wide=True, xaxis=axis("day", showgrid=False), yaxis=axis("AUC"))


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


def _table(evaluations: list[Record]) -> Html | None:
    if not evaluations:
        return tag("p", "The run has written no evaluation yet.", class_="missing")
    titles = ["split", "epoch", "day", "samples", "rows", "AUC", "logloss", "norm. entropy", "calibration"]
    extra = any(number(event, "metrics", "grouped_auc") is not None for event in evaluations)
    titles += ["grouped AUC"] if extra else []
    body = [_row(event, titles) for event in evaluations[-ROWS_MOST:]]
    hidden = len(evaluations) - len(body)
    return tag(
        "details",
        tag("summary", f"All evaluations ({len(evaluations):,})"),
        tag("p", f"The last {ROWS_MOST} are shown; {hidden:,} older ones are in events.jsonl.") if hidden > 0 else None,
        table(titles, body),
    )


def _row(event: Record, titles: list[str]) -> Html:
    metrics = ("auc", "logloss", "normalised_entropy", "calibration", "grouped_auc")
    cells = [
        formatting.plain_text(event.get("split")),
        formatting.count(epoch(event) if event.get("split") == "valid" else None),  # the others are made after training
        formatting.plain_text(event.get("day")),
        formatting.count(number(event, "samples")),
        formatting.count(number(event, "rows")),
        *(formatting.figure(number(event, "metrics", name)) for name in metrics),
    ]
    return row(titles, cells)
