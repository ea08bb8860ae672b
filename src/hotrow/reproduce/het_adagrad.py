"""Beside HET Table 2, which has SGD alone: AUC with Adagrad by the staleness of cached rows.

A cached accumulator counts a gradient once for each worker, because the others are expected to have similar ones, or
once (`Cache(workers=1)`), as it would if HET were applied to Adagrad to the letter.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from hotrow.config import Cache
from hotrow.metrics import auc
from hotrow.optim.sparse import Adagrad
from hotrow.reproduce.asgd_comparison import above, below, paired, words
from hotrow.reproduce.het_table_2 import DENSE, LOCAL_BATCH, SEEDS, WORKERS, Table2Size, trained
from hotrow.reproduce.results import Tell, promise, promise_lines, silent, table

ROWS_LR = 0.05
FULL, QUICK = Table2Size(batches=1_000), Table2Size(batches=6, test_rows=2_000, ids=500)
STALENESS = (0, 10, 100)
ALL, OWN = "all workers", "own alone"


def variants(size: Table2Size) -> dict[str, Cache | None]:
    """By name."""
    found: dict[str, Cache | None] = {"no cache": None}
    for staleness in STALENESS:
        for name, workers in ((ALL, None), (OWN, 1)):
            found[_name(staleness, name)] = Cache(capacity=size.cache_rows, staleness=staleness, workers=workers)
    return found


def run(
    quick: bool = False, *, seeds: Sequence[int] | None = None, size: Table2Size | None = None, tell: Tell = silent
) -> dict[str, Any]:
    """AUCs by variant and seed, and their differences from no cache."""
    size = size or (QUICK if quick else FULL)
    found: dict[str, dict[int, float]] = {name: {} for name in variants(size)}
    for seed in seeds or (SEEDS[:2] if quick else SEEDS):
        for name, cache in variants(size).items():
            found[name][seed] = _auc(size, seed, cache)
        tell(f"seed {seed}: " + ", ".join(f"{name} {each[seed]:.4f}" for name, each in found.items()))
    return compared(size, found)


def compared(size: Table2Size, found: Mapping[str, Mapping[int, float]]) -> dict[str, Any]:
    """The result."""
    none = found["no cache"]
    return {
        "settings": {
            **asdict(size), "seeds": list(none), "workers": WORKERS, "local_batch": LOCAL_BATCH, "rows_lr": ROWS_LR,
            "dense": DENSE, "cache_rows": size.cache_rows,
        },
        "variants": {
            name: {"auc": {str(seed): each for seed, each in mine.items()}, "mean": fmean(mine.values()),
                   "minus_no_cache": paired(mine, none)}
            for name, mine in found.items()
        },
        "promises": _promises(found),
    }  # fmt: skip


def lines(result: Mapping[str, Any]) -> list[str]:
    """For people."""
    rows = [
        [name, f"{each['mean']:.4f}", "" if name == "no cache" else words(each["minus_no_cache"])]
        for name, each in result["variants"].items()
    ]
    return [*table(["test AUC, Adagrad", "mean", "minus no cache"], rows), "", *promise_lines(result)]


def _name(staleness: int, accumulators: str) -> str:
    return f"s = {staleness}, {accumulators}"


def _auc(size: Table2Size, seed: int, cache: Cache | None) -> float:
    labels = size.task().test(seed, 1).labels
    assert labels is not None
    found = auc(labels[:, 0], trained(size, seed, cache, Adagrad(lr=ROWS_LR))[0])
    assert found is not None, "the test rows have both labels"
    return found


def _promises(found: Mapping[str, Mapping[int, float]]) -> list[dict[str, Any]]:
    default = paired(found[_name(10, ALL)], found["no cache"])
    gains = {s: paired(found[_name(s, ALL)], found[_name(s, OWN)]) for s in STALENESS}
    return [
        promise("s = 10 with the gradients of all workers is not below no cache by more than 0.002",
                not below(default) or (default is not None and default["mean"] > -0.002), words(default)),
        *(promise(f"with s = {s} the gradients of all workers are above own ones alone", above(gain), words(gain))
          for s, gain in gains.items()),
    ]  # fmt: skip
