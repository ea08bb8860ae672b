"""Batches of Criteo's shape, made up: ids follow Zipf's law (1.05), and labels depend on ids and numbers."""

from collections.abc import Iterator

import numpy as np
import without_pyarrow  # noqa: F401 - before Hotrow

from hotrow.data.batch import Batch, FeatureBlock

FEATURES, NUMBERS, ZIPF = 26, 13, 1.05
NAMES = tuple(f"id_{place}" for place in range(FEATURES))


def zipf_batches(count: int, samples: int, ids: int, seed: int = 0) -> Iterator[Batch]:
    """Of one table, "default". Each feature has `ids` ids of its own."""
    rng = np.random.default_rng(seed)
    bounds = np.cumsum(np.arange(1, ids + 1, dtype=np.float64) ** -ZIPF)
    bounds /= bounds[-1]
    for _ in range(count):
        ranks = np.searchsorted(bounds, rng.random((samples, FEATURES))).astype(np.int64)
        keys = ranks * FEATURES + np.arange(FEATURES)
        numbers = rng.normal(size=(samples, NUMBERS)).astype(np.float32)
        odds = np.sin(keys[:, :4] * 0.7).sum(1) + numbers[:, 0] - 1
        labels = (rng.random(samples) < 1 / (1 + np.exp(-odds))).astype(np.float32)[:, None]
        yield Batch((FeatureBlock("default", "one", NAMES, keys.reshape(-1)),), numbers, labels)
