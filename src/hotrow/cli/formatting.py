"""Numbers as people read them. No torch is imported here."""

import math

from hotrow.data.source import Trouble

METRICS = {  # others are shown unchanged
    "auc": "AUC",
    "grouped_auc": "grouped AUC",
    "rmse": "RMSE",
    "mae": "MAE",
    "r2": "R2",
}
IN_LABEL_UNITS = ("rmse", "mae", "bias")  # of any size
GROUPS = "groups_"  # counts among the metrics
LARGE = 1e6  # from here on decimals are not shown
SINGULAR = {
    "lines": "line", "ids": "id", "numbers": "number", "sequences": "sequence", "steps": "step", "losses": "loss",
    "gradients": "gradient", "batches": "batch", "samples": "sample", "pushes": "push",
}  # fmt: skip


def state(
    unit: str, done: int, total: int | None, per_s: float, *more: str, left_s: float | None = None, short: bool = False
) -> str:
    """How far something is: "40,960 of 81,920 samples  20,480/s  loss 0.4321  2 s left"; short: "41 k of 82 k"."""
    number = magnitude if short else "{:,.0f}".format
    unit = "" if short else f" {unit}"
    known = total is not None and total >= done
    parts = [f"{number(done)} of {number(total or 0)}{unit}" if known else f"{number(done)}{unit}"]
    parts += [f"{number(per_s)}/s", *more]
    if known and left_s is not None:
        parts.append(f"{duration(left_s)} left")
    return "  ".join(parts)


def magnitude(number: float) -> str:
    """Three figures: "81.9 k"."""
    for unit, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= 0.9995 * factor:
            return f"{number / factor:.3g} {unit}"
    return f"{number:.3g}"


def error_of(error: float) -> str:
    """ " ±3e-05" behind a figure; nothing where it is exact."""
    return f" ±{error:.0e}" if error else ""


def metrics(found: dict[str, float | None], auc_error: float = 0.0) -> list[str]:
    """Each with its name; how many groups there were is left to a table."""
    shown = {name: value for name, value in found.items() if not name.startswith(GROUPS)}
    errors = {name: error_of(auc_error) if name.startswith("auc") and shown[name] is not None else "" for name in shown}
    return [f"{metric_name(name)} {metric_value(name, value)}{errors[name]}" for name, value in shown.items()]


def metric_name(name: str) -> str:
    """auc -> AUC, auc_2 -> AUC of label 2."""
    base, _, label = name.rpartition("_")
    if label.isdigit():
        return f"{metric_name(base)} of label {label}"
    return METRICS.get(name, name.replace("_", " "))


def metric_value(name: str, value: float | None) -> str:
    """Four digits, or a count; "unknown" where there is none, as of the AUC of one class."""
    if value is None:
        return "unknown"
    if name.startswith(IN_LABEL_UNITS):
        return f"{value:.4g}" if abs(value) < 1 else f"{value:,.4f}"
    return f"{value:,.0f}" if name.startswith(GROUPS) or LARGE <= abs(value) < math.inf else f"{value:.4f}"


def counted(name: str, count: int) -> str:
    """ "1 short step", "2 short steps": counts have names in the plural."""
    words = name.split("_")
    return f"{count:,} {' '.join(SINGULAR.get(word, word) if count == 1 else word for word in words)}"


def several(count: int, thing: str) -> str:
    """ "1 shard", "2 shards"."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """Two figures are enough: "3 h 20 min"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def left_out(trouble: Trouble) -> str:
    """How many lines were left out, with the first of them."""
    lines = "line was" if trouble.malformed == 1 else "lines were"
    return f"{trouble.malformed:,} malformed {lines} left out; the first: {trouble.first[0]}"
