"""How unevenly the rows of a table were trained."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotrow.store import SavedTable

POINTS = 200


def table_pictures(tier: SavedTable) -> dict[str, Any]:
    """`skew`: [rank, updates] of the k-th most trained row; `updates`: [low, high, rows] over powers of two."""
    parts = [chunk.fields["version"] for chunk in tier.export()]
    if not parts:
        return {"skew": None, "updates": []}
    updates = np.concatenate(parts).astype(np.int64) - 1  # a fresh row has version 1
    return {"skew": skew_points(updates), "updates": histogram(updates)}


def skew_points(counts: NDArray[np.int64], most: int = POINTS) -> list[list[int]]:
    """Counts in falling order at ranks that are even on a logarithmic axis."""
    falling = np.sort(counts)[::-1]
    ranks = np.unique(np.geomspace(1, len(falling), min(most, len(falling))).round().astype(np.int64))
    return [[int(rank), int(falling[rank - 1])] for rank in ranks]


def histogram(counts: NDArray[np.int64]) -> list[list[int]]:
    """[low, high, rows]: rows whose count is from low to high, both included; 0 is a range of its own."""
    edges = [0, 1]
    while edges[-1] <= counts.max(initial=0):
        edges.append(edges[-1] * 2)
    rows, _ = np.histogram(counts, np.array([*edges[:-1], edges[-1]]))
    return [[low, high - 1, int(count)] for low, high, count in zip(edges, edges[1:], rows, strict=False)]
