"""Figures of the tables of a checkpoint: sizes, norms, ages, and how unevenly rows are updated. One pass over the rows.

Memory does not grow with the table, apart from the keys of the deltas of a chain.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotrow.checkpoint.distribution import Distribution
from hotrow.checkpoint.manifest import SavedTableFacts
from hotrow.checkpoint.reader import SavedCheckpoint, SavedLink
from hotrow.checkpoint.rows import RowShape, join_rows, take_rows
from hotrow.checkpoint.safetensors_header import tensors_of
from hotrow.store.rows import Rows
from hotrow.store.shards import shard_of

TOP_ROWS = 10
QUANTILES = (0.0, 0.01, 0.1, 0.5, 0.9, 0.99, 1.0)
TOP_PARTS = (0.01, 0.1)
TICK_SAMPLES = 1024  # of `last_seen`
VERSION, LAST_UPDATE, LAST_SEEN = "version", "last_update", "last_seen"


@dataclass(slots=True)
class TableStatistics:
    """What the rows of a table are like."""

    facts: SavedTableFacts
    shape: RowShape
    step: int | None  # of the checkpoint; None: not known
    samples: int | None
    rows: int = 0
    never_updated: int = 0
    norms: Distribution = field(default_factory=Distribution)
    updates: Distribution = field(default_factory=Distribution)  # of each row
    update_ages: Distribution = field(default_factory=Distribution)  # in steps, of rows that were updated
    seen_ages: Distribution = field(default_factory=Distribution)  # in samples
    top: Rows | None = None  # the rows with the most updates
    waiting: int = 0  # keys that wait for admission
    shard_rows: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    def add(self, chunk: Rows) -> None:
        """Count the rows of a chunk."""
        shards = len(self.facts.shards)
        if not len(self.shard_rows):
            self.shard_rows = np.zeros(shards, np.int64)
        self.rows += len(chunk.keys)
        self.shard_rows += np.bincount(shard_of(np.ascontiguousarray(chunk.keys), shards), minlength=shards)
        self.norms.add(norms_of(chunk.values))
        if VERSION in chunk.fields:
            self._add_versions(chunk)
        if LAST_SEEN in chunk.fields and self.samples is not None:
            seen = chunk.fields[LAST_SEEN].astype(np.float64)
            self.seen_ages.add(np.maximum(self.samples // TICK_SAMPLES - seen, 0) * TICK_SAMPLES)

    def _add_versions(self, chunk: Rows) -> None:
        versions = chunk.fields[VERSION]
        updates = np.maximum(versions.astype(np.float64) - 1, 0)  # a fresh row has version 1
        self.updates.add(updates)
        self.never_updated += int((updates == 0).sum())
        if LAST_UPDATE in chunk.fields and self.step is not None:
            last = chunk.fields[LAST_UPDATE][updates > 0].astype(np.float64)
            self.update_ages.add(np.maximum(self.step - last, 0))
        rows = _top(chunk, versions)
        if self.top is not None:
            both = join_rows([self.top, rows])
            rows = _top(both, both.fields[VERSION])
        self.top = rows

    def document(self) -> dict[str, Any]:
        """All figures, as JSON."""
        settings = self.facts.settings
        return {
            "rows": self.rows,
            "rows_in_manifest": self.facts.rows,
            "bytes": self.rows * self.shape.bytes,
            "dim": self.shape.dim,
            "state_dim": self.shape.state_dim,
            "fields": list(self.shape.fields),
            "type": settings.get("type"),
            "optimizer": settings.get("optimizer"),
            "shards": [int(rows) for rows in self.shard_rows] or [0] * len(self.facts.shards),
            "waiting": self.waiting,
            "never_updated": self.never_updated,
            "norm": _quantiles(self.norms) | {"not_finite": self.norms.not_finite},
            "updates": _quantiles(self.updates) | {"sum": self.updates.total},
            "update_share_of_top": {f"{part:g}": self.updates.share_of_top(part) for part in TOP_PARTS},
            "steps_since_update": _quantiles(self.update_ages),
            "samples_since_seen": _quantiles(self.seen_ages),
            "top": [] if self.top is None else [row_document(self.top, at) for at in range(len(self.top.keys))],
        }


def inspect_tables(
    found: SavedCheckpoint, watch: Callable[[int], object] = lambda _: None
) -> dict[str, TableStatistics]:
    """The figures of every table; `watch` gets the rows done so far."""
    counters, done = found.manifest.counters, 0
    tables = {}
    for name, facts in found.manifest.tables.items():
        figures = TableStatistics(facts, found.shape(name), counters.get("step"), counters.get("samples"))
        for chunk in found.rows(name):
            figures.add(chunk)
            done += len(chunk.keys)
            watch(done)
        figures.waiting = sum(len(keys) for keys, _ in found.waiting(name))
        tables[name] = figures
    return tables


def inspection_document(found: SavedCheckpoint, tables: dict[str, TableStatistics]) -> dict[str, Any]:
    """Everything that `hotrow inspect` knows, as JSON."""
    manifest = found.manifest
    tensors = tensors_of(found.place) if manifest.has_dense else None
    return {
        "checkpoint": found.name,
        "number": manifest.number,
        "bytes": found.size,
        "chain": [link_document(link) for link in found.chain],
        "tables": {name: figures.document() for name, figures in tables.items()},
        "dense": None
        if tensors is None
        else [{"name": e.name, "type": e.type, "shape": list(e.shape), "bytes": e.bytes} for e in tensors],
    }


def link_document(link: SavedLink) -> dict[str, Any]:
    """One checkpoint of a chain."""
    manifest = link.manifest
    shards = [shard for table in manifest.tables.values() for shard in table.shards]
    return {
        "number": manifest.number,
        "kind": manifest.kind,
        "saved_at": manifest.saved_at,
        "hotrow": manifest.hotrow,
        "step": manifest.counters.get("step"),
        "samples": manifest.counters.get("samples"),
        "bytes": manifest.size,
        "rows": sum(shard.count for shard in shards),  # of a delta: those that changed
        "removed": sum(shard.removed_count for shard in shards),
    }


def row_document(rows: Rows, at: int) -> dict[str, Any]:
    """One row with its counters; values and state are left to whoever wants them."""
    fields = {name: int(column[at]) for name, column in rows.fields.items()}
    return {"key": int(rows.keys[at]), "norm": float(norms_of(rows.values[at : at + 1])[0]), **fields}


def norms_of(values: NDArray[np.float32]) -> NDArray[np.float64]:
    """The length of each row. Squares are float64: those of a float32 may be too large for one."""
    squares: NDArray[np.float64] = np.einsum("ij,ij->i", values, values, dtype=np.float64)
    return np.sqrt(squares)


def _top(chunk: Rows, versions: NDArray[np.uint32]) -> Rows:
    """Copies of the rows with the most updates; of equals, those with the smaller keys."""
    most = min(TOP_ROWS, len(versions))
    candidates = np.flatnonzero(versions >= np.partition(versions, -most)[-most]) if most else np.zeros(0, np.intp)
    order = np.lexsort((chunk.keys[candidates], -versions[candidates].astype(np.int64)))
    return take_rows(chunk, candidates[order][:TOP_ROWS])


def _quantiles(found: Distribution) -> dict[str, float | None]:
    return {f"p{part * 100:g}": found.quantile(part) for part in QUANTILES}
