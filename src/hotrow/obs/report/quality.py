"""How the predictions behave: ROC and calibration of the last test, or of what stands in for it."""

from typing import Any

from markupsafe import Markup

from hotrow.obs.report import formatting
from hotrow.obs.report.charts import axis, chart, line, missing, points
from hotrow.obs.report.folder import EVALUATION, ReportInputs
from hotrow.obs.report.headline import SPLITS, metrics_of
from hotrow.obs.report.rendering import render
from hotrow.obs.report.run import Record, columns, number

FIGURES = {
    "auc": "AUC",
    "logloss": "Logloss",
    "normalised_entropy": "Normalised entropy",
    "calibration": "Calibration",
    "grouped_auc": "Grouped AUC",
    "groups_used": "Groups with both classes",
    "groups_left_out": "Groups left out",
    "accuracy": "Accuracy",
    "rmse": "RMSE",
    "mae": "MAE",
    "r2": "R2",
    "bias": "Bias",
}


def quality(folder: ReportInputs) -> Markup:
    """The section."""
    template = "obs/report/templates/predictions.html"
    split = next((name for name in SPLITS if isinstance(folder.evaluation.get(name), dict)), None)
    if split is None:
        return render(template, why=folder.missing.get(EVALUATION) or "evaluation.json holds no evaluation yet.")
    pictures = folder.evaluation[split]
    return render(
        template,
        why=None,
        split=SPLITS[split].lower(),
        figures=_figures(pictures.get("metrics"), number(pictures, "auc_error")),
        pictures=_charts(pictures),
    )


def _charts(pictures: Record) -> list[Markup]:
    """Numbers have no ROC curve."""
    return [_observed(pictures)] if "rmse" in metrics_of(pictures) else [_roc(pictures), _calibration(pictures)]


def _figures(metrics: Any, auc_error: float | None) -> list[tuple[str, str]]:
    if not isinstance(metrics, dict):
        return []
    shown = {name: number(metrics, name) for name in FIGURES if name in metrics}
    return [(FIGURES[name], _figure(name, value, auc_error)) for name, value in shown.items()]


def _figure(name: str, value: float | None, auc_error: float | None) -> str:
    if name == "auc":
        return formatting.auc(value, auc_error)
    return formatting.count(value) if name.startswith("groups_") else formatting.figure(value)


def _roc(pictures: Record) -> Markup:
    title = "ROC curve"
    x, y = columns(pictures.get("roc"), 0, 1)
    if not x:
        return missing(title, "There is no ROC curve: the evaluation lacks one of the two classes.")
    hover = "%{y:.1%} of the positives at %{x:.1%} of the negatives<extra></extra>"
    traces = [line("model", x, y, "--blue", hovertemplate=hover), _diagonal("chance (dashed)", 1.0)]
    share = {"range": [0, 1.01], "tickformat": ".0%", "dtick": 0.2}
    across, up = axis("negatives taken for positives", **share), axis("positives found", **share)
    return chart(title, "The further above the dashed line, the better the order.", traces, xaxis=across, yaxis=up)


def _calibration(pictures: Record) -> Markup:
    title = "Calibration"
    x, y, counts = columns(pictures.get("calibration"), "predicted", "observed", "count")
    if not x:
        return missing(title, "There is no calibration picture: the evaluation holds no samples.")
    hover = "predicted %{x:.4f}, observed %{y:.4f}<br>%{customdata:,d} samples<extra></extra>"
    end = max([*x, *y, 1e-9]) * 1.05
    model = points("model", x, y, "--blue", customdata=counts, hovertemplate=hover)
    across, up = axis("mean prediction", range=[0, end]), axis("positives among them", range=[0, end])
    note = "Samples in bins of equal count, by prediction. Above the dashed line the model promises too little."
    return chart(title, note, [model, _diagonal("right (dashed)", end)], xaxis=across, yaxis=up)


def _observed(pictures: Record) -> Markup:
    title = "Predictions and labels"
    x, y, counts = columns(pictures.get("calibration"), "predicted", "observed", "count")
    if not x:
        return missing(title, "There is no picture of the predictions: the evaluation holds no samples.")
    hover = "predicted %{x:.4g}, observed %{y:.4g}<br>%{customdata:,d} samples<extra></extra>"
    model = points("model", x, y, "--blue", customdata=counts, hovertemplate=hover)
    note = "Samples in bins of equal count, by prediction. Above the dashed line the model predicts too little."
    traces = [model, _diagonal("right (dashed)", max(*x, *y), min(*x, *y))]
    return chart(title, note, traces, xaxis=axis("mean prediction"), yaxis=axis("mean label"))


def _diagonal(name: str, end: float, start: float = 0) -> dict[str, Any]:
    look = {"color": "--soft", "width": 1.5, "dash": "dash"}
    return {**line(name, [start, end], [start, end], "--soft"), "line": look, "hoverinfo": "skip"}
