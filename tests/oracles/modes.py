"""Training modes in float64 on a logistic model, slowly and from the papers: who divides by what.

The model: log-odds of a sample = x . (w + row of its id). The dense parameters are w, the embeddings are rows by key.
Everything is plain SGD unless it says otherwise, so that an error of scale shows as an error of scale.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
Average = Literal["batch", "present"]


@dataclass(frozen=True, slots=True)
class Samples:
    """A batch: numbers [samples, dim], one id and one label (0 or 1) each."""

    x: F64
    ids: NDArray[np.int64]
    labels: F64

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, which: slice) -> "Samples":
        return Samples(self.x[which], self.ids[which], self.labels[which])


class RowPart(TypedDict):
    """The gradients of rows in one push: of the mean loss over its samples."""

    grad: dict[int, F64]
    samples: int
    token: int


def gradients(weight: F64, rows: Mapping[int, F64], batch: Samples) -> tuple[F64, dict[int, F64]]:
    """Of the mean log loss: for w, and for the row of each id that is there."""
    odds = np.array([x @ (weight + rows[int(key)]) for x, key in zip(batch.x, batch.ids, strict=True)])
    residual = 1 / (1 + np.exp(-odds)) - batch.labels
    per_sample = residual[:, None] * batch.x / len(batch)
    of_rows = {int(key): per_sample[batch.ids == key].sum(0) for key in np.unique(batch.ids)}
    return per_sample.sum(0), of_rows


def sync_step(weight: F64, rows: Mapping[int, F64], batch: Samples, lr: float) -> tuple[F64, dict[int, F64]]:
    """One worker with the whole global batch: what Sync promises, however many workers share it."""
    of_weight, of_rows = gradients(weight, rows, batch)
    moved = {key: row - lr * of_rows[key] if key in of_rows else row for key, row in rows.items()}
    return weight - lr * of_weight, moved


def dense_aggregate(parts: Sequence[tuple[F64, int, float]]) -> F64:
    """(gradient, samples, weight) of each part -> sum of w n g / sum of n; parts of weight 0 stay in the divisor."""
    total = sum(weight * samples * grad for grad, samples, weight in parts)
    return np.asarray(total / sum(samples for _, samples, _ in parts), np.float64)


def gba_aggregate(
    parts: Sequence[RowPart],
    last_update: Mapping[int, int],
    step: int,
    tolerance: int,
    average: Average,
    literal: bool = False,
) -> dict[int, F64 | None]:
    """One gradient per id that is in any part, or None where all its parts are too old: that row stays untouched.

    Staleness of an id in a part = last_update of its row - token, never below 0. A row that step s changed has s + 1
    there, one that no step changed 0. `literal` tags all ids with this step first, as Algorithm 2 of GBA is printed.
    "batch" divides by the samples of all parts, "present" by those of the parts with the id.
    """
    everybody = sum(part["samples"] for part in parts)
    found: dict[int, F64 | None] = {}
    for key in {key for part in parts for key in part["grad"]}:
        holders = [part for part in parts if key in part["grad"]]
        tag = step if literal else last_update.get(key, 0)
        fresh = [part for part in holders if max(0, tag - part["token"]) <= tolerance]
        divisor = everybody if average == "batch" else sum(part["samples"] for part in holders)
        total = sum(part["samples"] * part["grad"][key] for part in fresh)
        found[key] = np.asarray(total / divisor, np.float64) if fresh else None
    return found


@dataclass(slots=True)
class GBA:
    """The server of GBA: a step closes with `parts_per_step` pushes, whoever sent them."""

    weight: F64
    rows: dict[int, F64]
    parts_per_step: int
    tolerance: int
    lr: float
    average: Average = "batch"
    literal: bool = False
    step: int = 0
    pulls: int = 0
    last_update: dict[int, int] = field(default_factory=dict)
    buffer: list[tuple[F64, RowPart]] = field(default_factory=list)

    def pull(self) -> tuple[int, F64, dict[int, F64]]:
        """A token and the parameters as they are now."""
        token = self.pulls // self.parts_per_step
        self.pulls += 1
        return token, self.weight.copy(), {key: row.copy() for key, row in self.rows.items()}

    def push(self, token: int, of_weight: F64, of_rows: dict[int, F64], samples: int) -> None:
        """Into the buffer; when it is full the step is made."""
        self.buffer.append((of_weight, {"grad": of_rows, "samples": samples, "token": token}))
        if len(self.buffer) == self.parts_per_step:
            self._close()

    def _close(self) -> None:
        parts = [part for _, part in self.buffer]
        weights = [float(max(0, self.step - part["token"]) <= self.tolerance) for part in parts]
        dense = [(grad, part["samples"], w) for (grad, part), w in zip(self.buffer, weights, strict=True)]
        self.weight = self.weight - self.lr * dense_aggregate(dense)
        found = gba_aggregate(parts, self.last_update, self.step, self.tolerance, self.average, self.literal)
        for key, grad in found.items():
            if grad is not None:
                self.rows[key] = self.rows[key] - self.lr * grad
                self.last_update[key] = self.step + 1
        self.buffer.clear()
        self.step += 1


@dataclass(slots=True)
class KStepAdam:
    """Algorithm 2 of the k-step paper, all workers in one place; `literal` as it is printed, else as docs/dense.md."""

    start: F64
    workers: int
    lr: float = 1e-3
    beta1: float = 0.0
    beta2: float = 0.999
    eps: float = 1e-8
    literal: bool = False
    second_moment: F64 | None = None  # a hot start: v_i and v, which are not corrected then
    t: int = 0
    x: list[F64] = field(init=False)
    mean: list[F64] = field(init=False)
    square: list[F64] = field(init=False)
    merged: F64 | None = field(init=False)  # before the first merge only the paper has one

    def __post_init__(self) -> None:
        first = np.full_like(self.start, self.eps if self.literal else 0.0)
        self.x = [self.start.copy() for _ in range(self.workers)]
        self.mean = [np.zeros_like(self.start) for _ in range(self.workers)]
        self.square = [first.copy() for _ in range(self.workers)]
        self.merged = first if self.literal else None
        if self.second_moment is not None:
            self.square = [self.second_moment.copy() for _ in range(self.workers)]
            self.merged = self.second_moment.copy()

    def step(self, gradient: Callable[[int, F64], F64], *, merge: bool) -> None:
        """One step of all workers; `gradient(i, x_i)` is worker i's own."""
        self.t += 1
        for i in range(self.workers):
            g = gradient(i, self.x[i])
            self.mean[i] = self.beta1 * self.mean[i] + (1 - self.beta1) * g
            self.square[i] = self.beta2 * self.square[i] + (1 - self.beta2) * g**2
        correction = 1.0 if self.literal or self.second_moment is not None else 1 - self.beta2**self.t
        if merge:
            self.merged = np.mean(self.square, axis=0) / correction
        moved = []
        for x, mean, square in zip(self.x, self.mean, self.square, strict=True):
            frozen = self.merged if self.merged is not None else square / correction
            moved.append(x - self.lr * mean / (np.sqrt(frozen) + (0.0 if self.literal else self.eps)))
        self.x = [np.mean(moved, axis=0)] * self.workers if merge else moved


@dataclass(slots=True)
class HetServer:
    """Values by key and their clocks c_g. "max" is the paper; "additive" counts every update that was written back."""

    values: dict[int, F64]
    clock: Literal["max", "additive"] = "max"
    clocks: dict[int, int] = field(default_factory=dict)

    def write_back(self, key: int, change: F64, current: int, updates: int) -> None:
        self.values[key] = self.values[key] + change
        now = self.clocks.get(key, 0)
        self.clocks[key] = max(now, current) if self.clock == "max" else now + updates


@dataclass(slots=True)
class HetEntry:
    """A cached row: as it was fetched, as it is, its clocks c_s and c_c."""

    base: F64
    value: F64
    start: int
    current: int


@dataclass(slots=True)
class HetCache:
    """One worker's cache, of any size: Fetch, Evict, CheckValid and Clock of the HET paper."""

    server: HetServer
    staleness: int
    entries: dict[int, HetEntry] = field(default_factory=dict)
    fetches: int = 0

    def is_valid(self, key: int) -> bool:
        """c_c <= c_s + s and c_g <= c_c + s."""
        entry = self.entries[key]
        ahead = entry.current <= entry.start + self.staleness
        behind = self.server.clocks.get(key, 0) <= entry.current + self.staleness
        return ahead and behind

    def read(self, key: int) -> F64:
        """The cached value while it is valid; else it is written back and fetched."""
        if key in self.entries and not self.is_valid(key):
            self.evict(key)
        if key not in self.entries:
            self.fetches += 1
            clock = self.server.clocks.get(key, 0)
            self.entries[key] = HetEntry(self.server.values[key], self.server.values[key], clock, clock)
        return self.entries[key].value

    def update(self, key: int, change: F64) -> None:
        """A stale write: it stays here, and the row's clock moves on."""
        entry = self.entries[key]
        entry.value = entry.value + change
        entry.current += 1

    def evict(self, key: int) -> None:
        """Write back what was changed, if anything was."""
        entry = self.entries.pop(key)
        if entry.current > entry.start:
            self.server.write_back(key, entry.value - entry.base, entry.current, entry.current - entry.start)

    def flush(self) -> None:
        """Every row: the paper forgets those that nobody asks for again."""
        for key in list(self.entries):
            self.evict(key)
