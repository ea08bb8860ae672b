"""The numbers of a run, kept under the names of `names.py`. Safe from several threads at once."""

import math
import threading
from dataclasses import dataclass, field
from typing import Any

from hotrow.errors import InputError
from hotrow.obs.names import ALL, Kind, series


@dataclass(slots=True)
class ValueSummary:
    """How often values of each size came, in buckets that end at powers of two."""

    count: int = 0
    total: float = 0.0
    least: float = math.inf
    most: float = -math.inf
    nonfinite: int = 0  # in none of the other figures
    buckets: dict[float, int] = field(default_factory=dict)  # upper end, inclusive -> values

    def add(self, value: float) -> None:
        if not math.isfinite(value):
            self.nonfinite += 1
            return
        self.count += 1
        self.total += value
        self.least, self.most = min(self.least, value), max(self.most, value)
        end = _bucket_end(value)
        self.buckets[end] = self.buckets.get(end, 0) + 1

    def summary(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {
            "count": self.count,
            "sum": self.total,
            "least": self.least if self.count else None,
            "most": self.most if self.count else None,
            "nonfinite": self.nonfinite,
            "buckets": [[end, self.buckets[end]] for end in sorted(self.buckets)],
        }


class Registry:
    """Counters, gauges and histograms of one run. A name that is not listed, or of another kind, is refused."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, float] = {}
        self._histograms: dict[str, ValueSummary] = {}

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Raise a counter."""
        key = _checked(name, "counter", labels)
        if not (math.isfinite(amount) and amount >= 0):
            raise InputError(f"{name}: cannot add {amount}: a counter grows by 0 or more")
        with self._lock:
            self._values[key] = self._values.get(key, 0) + amount

    def set(self, name: str, value: float, **labels: str) -> None:
        """Say what a gauge shows now."""
        key = _checked(name, "gauge", labels)
        with self._lock:
            self._values[key] = value

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Count a value in a histogram."""
        key = _checked(name, "histogram", labels)
        with self._lock:
            self._histograms.setdefault(key, ValueSummary()).add(value)

    def snapshot(self) -> dict[str, Any]:
        """What was told so far: a number by `name{label=value}`, or the summary of a histogram."""
        with self._lock:
            summaries = {key: histogram.summary() for key, histogram in self._histograms.items()}
            return dict(sorted({**self._values, **summaries}.items()))


def _checked(name: str, kind: Kind, labels: dict[str, str]) -> str:
    metric = ALL.get(name)
    if metric is None:
        raise InputError(f"{name!r}: there is no such metric: name it in hotrow.obs.names.ALL")
    if metric.kind != kind:
        verb = {"counter": "add", "gauge": "set", "histogram": "observe"}[metric.kind]
        raise InputError(f"{name} is a {metric.kind}, not a {kind}: use {verb}")
    if set(labels) != set(metric.labels):
        wanted = ", ".join(f"{label}=..." for label in metric.labels) or "none"
        raise InputError(f"{name}: labels {sorted(labels)} do not fit: give {wanted}")
    return series(name, labels)


def _bucket_end(value: float) -> float:
    """The power of two at or above a value; 0 for what is not above 0."""
    if value <= 0:
        return 0.0
    mantissa, exponent = math.frexp(value)  # value = mantissa * 2**exponent with mantissa in [0.5, 1)
    return math.ldexp(1.0, exponent - 1 if mantissa == 0.5 else exponent)
