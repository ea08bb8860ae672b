"""The figures of `hotrow bench cluster` for people and for files."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from hotrow.bench.cluster.plan import ClusterPlan
from hotrow.bench.machine import provenance
from hotrow.bench.peers import Adapter, lines_of, versions_of
from hotrow.bench.report import rounded
from hotrow.bench.rounds import Figures

# (key, words, unit, what it should be); {name} stands for every peer
LINES = (
    ("sync_equals_local", "Sync: same losses as in one process", "yes", "yes"),
    ("auc_gap_fp16_scaled", "AUC: rows in halves - in floats", "auc", "within 0.001"),
    ("auc_gap_hybrid_sync", "AUC: Hybrid - Sync", "auc", "within 0.001"),
    ("hybrid_vs_sync_delay", "narrow, delayed: Hybrid / Sync", "x", "2.5"),
    ("hybrid_vs_async_delay", "delayed: Hybrid / Async", "x", "0.8"),
    ("hybrid_bound_share", "delayed: Hybrid's share of its bound", "x", "0.85"),
    ("hybrid_near_share", "delayed: Hybrid / Hybrid without delay", "x", ""),
    ("sync_ahead_equals_sync", "look-ahead: same losses as Sync", "yes", "yes"),
    ("sync_ahead_vs_sync_delay", "delayed: Sync with look-ahead / Sync", "x", "1.6"),
    ("sync_ahead_bound_share", "delayed: look-ahead's share of its bound", "x", "0.9"),
    ("sync_ahead_vs_sync_near", "without delay: Sync with look-ahead / Sync", "x", ""),
    ("hybrid_vs_sync_ahead_delay", "delayed: Hybrid / Sync with look-ahead", "x", ""),
    ("async_vs_sync_ahead_delay", "delayed: Async / Sync with look-ahead", "x", ""),
    ("wire_rows_ratio", "bytes, rows to trainers / plain", "x", "at most 0.25"),
    ("wire_pooled_ratio", "bytes, pooled vectors / plain", "x", "at most 0.55"),
    ("wire_pooled_shards_ratio", "and between embedding workers and shards", "x", ""),
    ("gba_straggler_kept", "straggler: GBA / both by themselves", "x", "0.85"),
    ("sync_straggler_pace", "straggler: Sync / twice the slower one", "x", "about 1"),
    ("reader_scaling", "a slow source: four loaders / one", "x", "3.5"),
    ("reader_scaling_share", "and four loaders / a source that is not slowed", "x", ""),
    ("overhead_vs_local", "one trainer, one shard / one process", "x", "0.60"),
    ("coordinator_batches_per_s", "coordinator alone, slowest token mode", "batches/s", "20,000"),
    ("coordinator_gba_batches_per_s", "coordinator alone, GBA", "batches/s", ""),
    ("coordinator_async_batches_per_s", "coordinator alone, Async", "batches/s", ""),
    ("vs_{name}_d16", "dim 16: Hybrid / {title}", "x", "1"),
    ("vs_{name}_d64", "dim 64: Hybrid / {title}", "x", "1"),
    ("wire_off_round_trip_ms", "round trip, security off", "ms", ""),
    ("wire_key_round_trip_ms", "round trip, key", "ms", ""),
    ("wire_curve_round_trip_ms", "round trip, curve", "ms", ""),
    ("shm_vs_tcp", "large frames, shared memory / TCP", "x", "3"),
    ("shm_read_vs_tcp", "and read by their receiver", "x", ""),
    ("shm_4_mib_vs_tcp", "frames of 4 MiB, shared memory / TCP", "x", ""),
    ("shm_1_mib_vs_tcp", "frames of 1 MiB", "x", ""),
    ("shm_256_kib_vs_tcp", "frames of 256 KiB", "x", ""),
    ("shm_small_vs_tcp", "small messages, shared memory / TCP", "x", "about 1"),
    ("shm_gibps", "large frames, shared memory", "GiB/s", ""),
    ("wire_off_gibps", "large frames, off", "GiB/s", ""),
    ("wire_key_gibps", "large frames, key", "GiB/s", ""),
    ("wire_curve_gibps", "large frames, curve", "GiB/s", ""),
)


def document(plan: ClusterPlan, figures: Figures, adapters: Sequence[Adapter] = ()) -> dict[str, Any]:
    """Everything worth keeping, flat: the figures, then what they depend on."""
    job = {key: value for key, value in asdict(plan).items() if key != "criteo"}
    return {**rounded(figures), "job": job, **provenance("hotrow", versions_of(adapters))}


def summary(plan: ClusterPlan, figures: Figures, adapters: Sequence[Adapter] = ()) -> Group:
    """The result as a person reads it; all figures are in the file of --json."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, side in (("", "left"), ("found", "right"), ("wanted", "right"), ("unit", "left")):
        table.add_column(name, justify="right" if side == "right" else "left", style="dim" if name == "unit" else "")
    for key, words, unit, wanted in lines_of(LINES, adapters):
        if key in figures:
            table.add_row(words, _cell(figures[key], unit), wanted, "" if unit in ("yes", "auc") else unit)
    alone = all(key.startswith("coordinator_") for key in figures)
    return Group(Text(coordinator_headline(plan) if alone else headline(plan), style="bold"), table)


def coordinator_headline(plan: ClusterPlan) -> str:
    """The job of the part `coordinator` in one line."""
    return f"{plan.workers:,} workers and {plan.shards} shards that answer at once, {plan.granted:,} batches of a mode"


def headline(plan: ClusterPlan) -> str:
    """The job in one line."""
    return (
        f"DeepFM, 26 features over {plan.rows:,} ids, global batch {plan.samples:,}, two trainers and two shards, "
        f"{1e3 * plan.delay_s:.0f} ms of delay each way where it says so, {plan.rounds} rounds of {plan.steps} steps"
    )


def _cell(value: float | None, unit: str) -> str:
    if value is None:
        return "none"
    if unit == "yes":
        return "yes" if value else "no"
    if unit == "batches/s":
        return f"{value:,.0f}"
    return f"{value:+.5f}" if unit == "auc" else f"{value:.2f}"
