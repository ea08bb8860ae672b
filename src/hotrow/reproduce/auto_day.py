"""Automatic switching over a day: first counted over 24 virtual hours, then with a model that is trained."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hotrow.reproduce import auto_auc
from hotrow.reproduce.auto_throughput import (
    BATCH_S,
    DAYS,
    DENSE_BYTES,
    LOCAL_BATCH,
    ROW_BYTES,
    WINDOW_S,
    WORKERS,
    cluster,
    throughput,
)
from hotrow.reproduce.results import Tell, promise, promise_lines, silent, table
from hotrow.reproduce.settings import GLOBAL_BATCH, TASK
from hotrow.switching import Auto

SEEDS, AUC_SEEDS = (1, 2, 3), (1, 2, 3, 4, 5)
AUC_STEPS = 977  # two million samples
ENOUGH, MOST_NEEDLESS, AUC_WITHIN = 0.95, 2, 0.001
RULES = {"auto": Auto(minimum_stay=3600.0), "default": Auto()}  # what is promised is of the first


def run(
    quick: bool = False, *, seeds: Sequence[int] = SEEDS, auc_seeds: Sequence[int] = AUC_SEEDS, tell: Tell = silent
) -> dict[str, Any]:
    """Throughput on every day and seed, then AUC against Sync. A quick day has steps that are twenty times as long."""
    seeds, auc_seeds = (seeds[:1], auc_seeds[:2]) if quick else (seeds, auc_seeds)
    batch_s = 20 * BATCH_S if quick else BATCH_S
    days: dict[str, dict[str, Any]] = {name: {} for name in DAYS}
    for name, day in DAYS.items():
        for seed in seeds:
            days[name][str(seed)] = found = throughput(cluster(day, batch_s=batch_s), RULES, seed)
            auto = found["auto"]
            message = f"auto {auto['samples']:.3f} of the upper bound, {len(auto['switches'])} switches"
            tell(f"{name}, seed {seed}: {message}, {auto['needless']} needless")
    task = replace(TASK, days=2, train_rows=(24 if quick else AUC_STEPS) * GLOBAL_BATCH)
    task = replace(task, test_rows=20_000) if quick else task
    auc = auto_auc.compared(task, RULES["auto"], auc_seeds, tell)
    settings = {
        "rules": {name: rule.model_dump() for name, rule in RULES.items()},
        "workers": WORKERS, "local_batch": LOCAL_BATCH, "batch_s": batch_s,
        "dense_bytes": DENSE_BYTES, "row_bytes_per_sample": ROW_BYTES, "window_s": WINDOW_S,
        "days": {name: {"title": day.title, "straggling_share": day.share} for name, day in DAYS.items()},
        "auc": {"train_rows": task.train_rows, "test_rows": task.test_rows, "global_batch": GLOBAL_BATCH},
    }  # fmt: skip
    return {"settings": settings, "days": days, "auc": auc, "promises": promises(days, auc)}


def promises(days: Mapping[str, Mapping[str, Any]], auc: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each day by its worst seed."""
    made = []
    for name, by_seed in days.items():
        crossings = min(len(found["schedule_switches"]) for found in by_seed.values())
        least = min(found["auto"]["samples"] for found in by_seed.values())
        most = max(found["auto"]["needless"] for found in by_seed.values())
        enough = f"{name}: auto has {100 * ENOUGH:g} % of the upper bound"
        made += [
            promise(f"{name}: two true crossings or more", crossings >= 2, f"{crossings}"),
            promise(enough, least >= ENOUGH, f"{100 * least:.1f} % or more"),
            promise(f"{name}: at most {MOST_NEEDLESS} needless switches", most <= MOST_NEEDLESS, f"at most {most}"),
        ]
    gap = auc["auto_minus_sync"]
    within = gap["low"] >= -AUC_WITHIN and gap["high"] <= AUC_WITHIN
    message = f"{gap['mean']:+.5f}, from {gap['low']:+.5f} to {gap['high']:+.5f} over {gap['pairs']} pairs"
    return [*made, promise(f"AUC of auto minus Sync lies within ±{AUC_WITHIN:g}, 95 times of 100", within, message)]


def lines(result: dict[str, Any]) -> list[str]:
    """For people."""
    head = ["day", "seed", "Sync", "GBA", "schedule", "switches", *_rule_head("auto"), *_rule_head("default")]
    rows = [
        [
            name,
            seed,
            *(f"{100 * found[key]:.1f} %" for key in ("sync", "gba", "schedule")),
            str(len(found["schedule_switches"])),
            *_rule_cells(found["auto"]),
            *_rule_cells(found["default"]),
        ]
        for name, by_seed in result["days"].items()
        for seed, found in by_seed.items()
    ]
    pairs = [
        [str(pair["seed"]), f"{pair['sync']:.5f}", f"{pair['auto']:.5f}", f"{pair['auto'] - pair['sync']:+.5f}",
         f"{pair['sync_seconds'] / 3600:.1f} h", f"{pair['auto_seconds'] / 3600:.1f} h", str(len(pair["switches"]))]
        for pair in result["auc"]["pairs"]
    ]  # fmt: skip
    told = ["seed", "AUC of Sync", "of auto", "difference", "Sync took", "auto took", "switches"]
    return [
        "samples of the day, of the upper bound (in every window the better of both)",
        *table(head, rows), "", *_first_sentences(result["days"]), "", *table(told, pairs), "", *promise_lines(result),
    ]  # fmt: skip


def _rule_head(name: str) -> list[str]:
    return [name, "switches", "needless"]


def _rule_cells(found: Mapping[str, Any]) -> list[str]:
    return [f"{100 * found['samples']:.1f} %", str(len(found["switches"])), str(found["needless"])]


def _first_sentences(days: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What the controller said on the first seed of each day, up to four times."""
    told = []
    for name, by_seed in days.items():
        seed, found = next(iter(by_seed.items()))
        told.append(f"{name}, seed {seed}:")
        told += [f"  {each['time_s'] / 3600:5.2f} h  {each['sentence']}" for each in found["auto"]["switches"][:4]]
    return told
