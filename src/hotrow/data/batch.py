"""A batch of samples as plain arrays: what readers make, trainers use, and the wire carries."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hotrow.errors import InputError

I64 = NDArray[np.int64]
F32 = NDArray[np.float32]
Kind = Literal["one", "bags", "sequence"]
Pooling = Literal["mean", "sum"]


@dataclass(frozen=True, slots=True)
class FeatureBlock:
    """Holds the ids of features of one table, sample by sample: bag `sample * len(features) + feature`.

    "one": every bag holds one id, there are no bounds. "bags": bag k holds keys[bounds[k]:bounds[k + 1]], pooled to one
    vector. "sequence": one feature, whose ids keep their order; the oldest is first.

    Example:
        >>> import numpy as np
        >>> from hotrow.data import FeatureBlock
        >>> FeatureBlock("default", "bags", ("seen",), np.array([7, 8, 9]), bounds=np.array([0, 2, 3])).bounds.tolist()
        [0, 2, 3]
    """

    table: str
    kind: Kind
    features: tuple[str, ...]
    keys: I64
    bounds: I64 | None = None
    pooling: Pooling = "mean"

    def take(self, order: I64) -> "FeatureBlock":
        """The samples that `order` names, in its order."""
        wide = len(self.features)
        if self.bounds is None:
            return self._with(self.keys.reshape(-1, wide)[order].reshape(-1), None)
        bags = (order[:, None] * wide + np.arange(wide)).reshape(-1)
        lengths = np.diff(self.bounds)[bags]
        bounds = np.concatenate([[0], np.cumsum(lengths)])
        places = np.arange(bounds[-1]) + np.repeat(self.bounds[bags] - bounds[:-1], lengths)
        return self._with(self.keys[places], bounds)

    def slice(self, start: int, stop: int) -> "FeatureBlock":
        """Samples from start up to, not including, stop; keys are not copied."""
        wide = len(self.features)
        if self.bounds is None:
            return self._with(self.keys[start * wide : stop * wide], None)
        bounds = self.bounds[start * wide : stop * wide + 1]
        return self._with(self.keys[bounds[0] : bounds[-1]], bounds - bounds[0])

    def _with(self, keys: I64, bounds: I64 | None) -> "FeatureBlock":
        return FeatureBlock(self.table, self.kind, self.features, keys, bounds, self.pooling)


@dataclass(frozen=True, slots=True)
class Batch:
    """Holds samples: every array has one entry per sample.

    Example:
        >>> import numpy as np
        >>> from hotrow.data import Batch, FeatureBlock
        >>> users = FeatureBlock("default", "one", ("user",), np.array([7, 8]))
        >>> batch = Batch((users,), np.zeros((2, 0), np.float32), labels=np.array([[1], [0]], np.float32))
        >>> len(batch.slice(0, 1))
        1
    """

    parts: tuple[FeatureBlock, ...]
    numbers: F32  # [samples, numbers]
    labels: F32 | None = None  # [samples, labels]; None where there are none to learn from
    groups: I64 | None = None
    times: I64 | None = None  # unix seconds
    counts: dict[str, int] = field(default_factory=dict)  # of trouble met on the way: missing and cut values
    weights: F32 | None = None  # [samples]; what each sample's loss is multiplied by. None: 1

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, order: I64) -> "Batch":
        """The samples that `order` names, in its order. Counts stay with the batch they were counted in."""
        return Batch(
            tuple(part.take(order) for part in self.parts),
            self.numbers[order],
            None if self.labels is None else self.labels[order],
            None if self.groups is None else self.groups[order],
            None if self.times is None else self.times[order],
            weights=None if self.weights is None else self.weights[order],
        )

    def slice(self, start: int, stop: int) -> "Batch":
        """Samples from start up to, not including, stop; nothing is copied but bounds."""
        return Batch(
            tuple(part.slice(start, stop) for part in self.parts),
            self.numbers[start:stop],
            None if self.labels is None else self.labels[start:stop],
            None if self.groups is None else self.groups[start:stop],
            None if self.times is None else self.times[start:stop],
            weights=None if self.weights is None else self.weights[start:stop],
        )


def concatenated(batches: list[Batch]) -> Batch:
    """One batch after the other; their counts add up."""
    if len(batches) == 1:
        return batches[0]
    first = batches[0]
    counts: dict[str, int] = {}
    for batch in batches:
        for name, count in batch.counts.items():
            counts[name] = counts.get(name, 0) + count
    return Batch(
        tuple(_joined([batch.parts[place] for batch in batches]) for place in range(len(first.parts))),
        np.concatenate([batch.numbers for batch in batches]),
        _all_or_none("labels", [batch.labels for batch in batches]),
        _all_or_none("groups", [batch.groups for batch in batches]),
        _all_or_none("times", [batch.times for batch in batches]),
        counts,
        _all_or_none("weights", [batch.weights for batch in batches]),
    )


def _all_or_none(name: str, arrays: Sequence[NDArray[Any] | None]) -> NDArray[Any] | None:
    there = [array for array in arrays if array is not None]
    if len(there) not in (0, len(arrays)):
        raise InputError(f"{name}: {len(there)} of {len(arrays)} batches have them: join those with and without apart")
    return np.concatenate(there) if there else None


def _joined(parts: list[FeatureBlock]) -> FeatureBlock:
    keys = np.concatenate([part.keys for part in parts])
    if parts[0].bounds is None:
        return parts[0]._with(keys, None)
    starts = np.cumsum([0, *(len(part.keys) for part in parts)])
    bounds = [part.bounds[1:] + start for part, start in zip(parts, starts, strict=False) if part.bounds is not None]
    return parts[0]._with(keys, np.concatenate([[0], *bounds]))
