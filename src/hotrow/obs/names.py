"""Every metric that Hotrow knows, by name: unit, kind, labels and meaning. `docs/metrics.md` is made from this list.

A name is `area/what`. One name may be kept several times, told apart by labels; `series` writes such a one as
`table/rows{table=user}`. `python -m hotrow.obs.names` prints the page of the documentation.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A counter only grows, a gauge is the latest value, a histogram keeps how often values of each size came."""

    name: str
    unit: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


AREAS = {
    "train": "What the training loop does.",
    "evaluation": "What the model is worth on samples it was not trained on. `hotrow.metrics` computes them.",
    "mode": "What the mode makes of gradients: how late they come, and what becomes of them. Over all modes of a run.",
    "table": "What the embedding tables hold. Counts are those of the table, since it was made.",
    "data": "What was read.",
    "run": "What happened beside the training.",
}

ALL: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("train/samples", "samples", "counter", "Samples trained; one that came in two epochs counts twice."),
        Metric("train/steps", "steps", "counter", "Dense steps made."),
        Metric("train/epoch", "epochs", "gauge", "The epoch that runs, from 1."),
        Metric("train/loss", "1", "gauge", "Mean loss since the last report; of a classification logloss in nats."),
        Metric("train/auc", "1", "gauge", "AUC of the forward passes since the last report, each before its update."),
        Metric("train/auc_error", "1", "gauge", "Largest possible error of train/auc; 0: exact."),
        Metric("train/logloss", "nats", "gauge", "Logloss of the same predictions, their mean by sample weights."),
        Metric("train/calibration", "1", "gauge", "Mean of the same predictions over mean label; 1 is right."),
        Metric("train/samples_per_s", "samples/s", "gauge", "Speed since the last report."),
        Metric("train/reading_share", "1", "gauge", "Part of the time since the last report that waited for data."),
        Metric("train/lr", "1", "gauge", "Learning rate of the dense optimizer."),
        Metric("train/step_ms", "ms", "histogram", "Mean time of a step between two reports, waiting included."),
        Metric("train/refused_gradients", "rows", "counter", "Row gradients that were not finite and not applied."),
        Metric("evaluation/rmse", "label", "gauge", "Root of the mean squared error of a regression.", ("split",)),
        Metric("evaluation/mae", "label", "gauge", "Mean absolute error of a regression.", ("split",)),
        Metric("evaluation/r2", "1", "gauge", "Part of the label's variance that is explained.", ("split",)),
        Metric("evaluation/bias", "label", "gauge", "Mean prediction less mean label; 0 is right.", ("split",)),
        Metric("evaluation/rows", "samples", "gauge", "Samples of the last evaluation.", ("split",)),
        Metric("evaluation/auc", "1", "gauge", "Area under the ROC curve; ties count half.", ("split",)),
        Metric("evaluation/auc_error", "1", "gauge", "Largest possible error of AUC; 0: exact.", ("split",)),
        Metric("evaluation/accuracy", "1", "gauge", "Part of the samples whose class has the best score.", ("split",)),
        Metric("evaluation/logloss", "nats", "gauge", "Mean negative log-likelihood.", ("split",)),
        Metric(
            "evaluation/normalised_entropy", "1", "gauge",
            "Logloss over that of always predicting the base rate; below 1 is better than no model.", ("split",),
        ),
        Metric("evaluation/calibration", "1", "gauge", "Mean prediction over mean label; 1 is right.", ("split",)),
        Metric("evaluation/grouped_auc", "1", "gauge", "AUC inside each group, averaged by samples.", ("split",)),
        Metric("evaluation/groups_used", "groups", "gauge", "Groups that have both classes.", ("split",)),
        Metric("evaluation/groups_left_out", "groups", "gauge", "Groups of one class: they have no AUC.", ("split",)),
        Metric("mode/switches", "switches", "counter", "Changes of the mode."),
        Metric("mode/staleness", "steps", "gauge", "Mean staleness since the start.", ("of",)),
        Metric("mode/staleness_largest", "steps", "gauge", "Largest staleness since the start.", ("of",)),
        Metric("mode/granted", "batches", "gauge", "Batches that workers were let begin."),
        Metric("mode/applied", "batches", "gauge", "Batches whose dense gradients were applied, with whatever weight."),
        Metric("mode/parked", "waits", "gauge", "Times that a worker had to wait for others."),
        Metric("mode/dropped", "batches", "gauge", "Batches that were computed and not applied."),
        Metric("mode/samples_dropped", "samples", "gauge", "Samples of these batches."),
        Metric("mode/decayed", "batches", "gauge", "Batches whose dense gradient weighed less than 1."),
        Metric("mode/zero_weight", "batches", "gauge", "Batches whose dense gradient weighed nothing."),
        Metric("mode/ids_decayed", "ids", "gauge", "Ids of batches whose gradient weighed less than 1."),
        Metric("mode/ids_zero_weight", "ids", "gauge", "Ids of batches whose gradient weighed nothing."),
        Metric("mode/duplicates", "pushes", "gauge", "Gradients that came twice and counted once."),
        Metric("mode/short_steps", "steps", "gauge", "Steps with fewer samples than the mode promises."),
        Metric("table/rows", "rows", "gauge", "Rows that the table holds.", ("table",)),
        Metric("table/bytes", "bytes", "gauge", "All memory of the table.", ("table",)),
        Metric("table/value_bytes", "bytes", "gauge", "Memory of the values alone.", ("table",)),
        Metric("table/state_bytes", "bytes", "gauge", "Memory of the optimizer state alone.", ("table",)),
        Metric("table/created", "rows", "gauge", "Rows made.", ("table",)),
        Metric("table/evicted", "rows", "gauge", "Rows that made room for others.", ("table",)),
        Metric("table/expired", "rows", "gauge", "Rows that nobody saw for too long.", ("table",)),
        Metric("table/turned_away", "ids", "gauge", "Ids that got no row when they came.", ("table",)),
        Metric("table/disk_rows", "rows", "gauge", "Rows that are on disk alone.", ("table",)),
        Metric("table/disk_bytes", "bytes", "gauge", "Size of the file of rows on disk.", ("table",)),
        Metric("table/disk_index_bytes", "bytes", "gauge", "Memory of the index of these rows.", ("table",)),
        Metric("table/disk_filter_bytes", "bytes", "gauge", "Of these, filters of an index on disk.", ("table",)),
        Metric("table/disk_page_bytes", "bytes", "gauge", "And its pages in memory.", ("table",)),
        Metric("table/moved_down", "rows", "gauge", "Rows that moved from memory to disk.", ("table",)),
        Metric("table/moved_up", "rows", "gauge", "Rows that moved from disk to memory.", ("table",)),
        Metric("table/moved_ahead", "rows", "gauge", "Of these, rows that no lookup waited for.", ("table",)),
        Metric("table/moved_late", "rows", "gauge", "And those that a lookup waited for.", ("table",)),
        Metric("table/hinted", "ids", "gauge", "Ids announced ahead of their lookup, once for each batch.", ("table",)),
        Metric("table/hints_dropped", "ids", "gauge", "Of these, ids that were dropped: too many waited.", ("table",)),
        Metric("table/disk_wait_s", "s", "gauge", "Time that calls have waited for the disk.", ("table",)),
        Metric("data/malformed_lines", "lines", "counter", "Lines that could not be read and were left out."),
        Metric("run/warnings", "warnings", "counter", "Warnings in the event log."),
        Metric("run/checkpoints", "checkpoints", "counter", "Checkpoints written."),
    )
}  # fmt: skip


STALENESS = ("gradient", "data", "rows", "ids")  # whose staleness is kept
MODE_COUNTS = (
    "granted", "applied", "parked", "dropped", "samples_dropped", "decayed", "zero_weight", "ids_decayed",
    "ids_zero_weight", "duplicates", "short_steps",
)  # fmt: skip  # of a run's statistics


def area(name: str) -> str:
    """The part before the slash."""
    return name.partition("/")[0]


def series(name: str, labels: Mapping[str, str]) -> str:
    """A name with its labels, as snapshots and TensorBoard write it."""
    told = ",".join(f"{label}={labels[label]}" for label in sorted(labels))
    return f"{name}{{{told}}}" if told else name


def markdown() -> str:
    """The page docs/metrics.md."""
    parts = [
        "# Metrics\n",
        "<!-- made by `python -m hotrow.obs.names > docs/metrics.md`; a test compares -->\n",
        "Every number a run reports has a name, a unit and a kind. A *counter* only grows, a *gauge* is the latest\n"
        "value, a *histogram* keeps how often values of each size came. A metric with a label is kept once for each\n"
        "value of it.\n",
    ]
    for name, about in AREAS.items():
        lines = [f"## {name}\n", f"{about}\n", "| name | unit | kind | label | meaning |", "|---|---|---|---|---|"]
        lines += [_line(metric) for metric in ALL.values() if area(metric.name) == name]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _line(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.unit} | {metric.kind} | {labels} | {metric.help} |"


if __name__ == "__main__":
    print(markdown(), end="")
