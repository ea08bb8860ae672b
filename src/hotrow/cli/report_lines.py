"""Reports of training as lines of text."""

from collections.abc import Iterator

from hotrow.cli import formatting
from hotrow.obs import cache_counts, gpu_counts
from hotrow.obs.table_counts import by_table, is_table_count
from hotrow.trainer import Evaluated, Progress, Remark, Switched, TrainingEnded

SHORT_STEPS = "short_steps"


def quality(report: Progress, *, room: bool = True) -> list[str]:
    """Of a stretch of training; without room, of the two figures that matter most."""
    shown = [f"loss {formatting.metric_value('loss', report.loss)}"]
    shown += [] if report.auc is None else [f"AUC {report.auc:.4f}{formatting.error_of(report.auc_error)}"]
    if room and report.calibration is not None:
        shown.append(f"calibration {formatting.metric_value('calibration', report.calibration)}")
    return shown


def lateness(staleness: float | None) -> list[str]:
    """Of gradients, where several workers make them."""
    return [] if staleness is None else [f"{staleness:.2f} steps late"]


def of_the_mode(report: Switched | Remark) -> str:
    """A change of the mode, or a remark about it."""
    if isinstance(report, Remark):
        return f"note: {report.sentence}"
    to = report.sentence or f"to {report.mode}"  # a controller's sentence begins in the same way
    return f"after {report.samples:,} samples switched from {report.before} {to}"


def evaluation(report: Evaluated, epochs: int = 1) -> str:
    """One evaluation in a line."""
    when = [f"epoch {report.epoch + 1}"] if report.split == "valid" and epochs > 1 else []
    when += [f"day {report.day}"] if report.day is not None else []
    return "  ".join(
        [report.split, *when, *formatting.metrics(report.metrics, report.auc_error), f"{report.rows:,} rows"]
    )


def bytes_of_cache(saved: float) -> str:
    """What a cache did to the bytes on the wire, as a part of those without it."""
    if saved >= 0:
        return f"{saved:.1%} of the bytes saved"
    return f"{-saved:.1%} more bytes than without a cache: raise its capacity or staleness, or leave it out"


def ending(report: TrainingEnded) -> Iterator[str]:
    """Why a run stopped, where that is not the end of the data, and its irregularities."""
    if report.best is not None:
        name, value = report.best.metric, report.best.value
        best = f"the best valid {formatting.metric_name(name)}, {formatting.metric_value(name, value)}"
        place = f"of epoch {report.best.epoch + 1}"
        kept = (
            f"back to the state {place}, with {best}" if report.best.restored else f"{best}, is that {place}, the last"
        )
        yield f"{report.stopped}: {kept}"
    for table, found in by_table(report.counts, "cache").items():
        hits = cache_counts.hit_share(found)
        lookups = f"{hits:.1%} of lookups were hits, {found.get('written', 0):,} rows written back"
        yield f"cache of table {table}: {lookups}, {bytes_of_cache(cache_counts.saved_share(found))}"
    for table, found in by_table(report.counts, "gpu").items():
        held = f"{found.get('rows', 0):,} of {found.get('capacity', 0):,} rows"
        moved = f"{found.get('up', 0):,} rows came up, {found.get('down', 0):,} went down"
        yield f"GPU memory of table {table}: {held}, {gpu_counts.hit_share(found):.1%} of lookups were hits, {moved}"
    counts = {name: count for name, count in report.counts.items() if count and not is_table_count(name)}
    if counts.get(SHORT_STEPS, 0) <= report.epochs:
        counts.pop(SHORT_STEPS, None)  # the last step of an epoch may be short
    if counts:
        anew = " (missing values count again in every epoch)" if any("missing" in name for name in counts) else ""
        yield f"counted: {', '.join(formatting.counted(name, count) for name, count in counts.items())}{anew}"
