"""HET Table 2: AUC by the staleness s of cached rows, against no cache; and for test rows that hit a cache or miss it.

Eight workers train in Hybrid with SGD for the rows, as in the paper, each with a cache of a tenth of the ids. In the
paper a row that is in every batch gets 44,000 updates from each worker in an epoch, here as many as a worker has
batches: 4,000. So s = 10 and s = 1,000 stand for the paper's 100 and 10,000, which are 0.2 % and 23 % of an epoch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotrow.config import Cache
from hotrow.metrics import auc
from hotrow.modes import Hybrid
from hotrow.optim.sparse import SGD, AnyOptimizer
from hotrow.reproduce.asgd_comparison import below, paired, words
from hotrow.reproduce.days import Chain
from hotrow.reproduce.results import Tell, promise, promise_lines, silent, table
from hotrow.reproduce.task import Model, PaperHyper, TrainingTask
from hotrow.sim.cached_tables import SimCachedTables
from hotrow.sim.config import ClusterConfig
from hotrow.sim.network import Network
from hotrow.sim.speeds import LogNormal, Speeds

SEEDS = (1, 2, 3, 4, 5)
WORKERS, LOCAL_BATCH = 8, 32
NO_BOUND = 2**31
VARIANTS: dict[str, int | None] = {
    "no cache": None, "s = 0": 0, "s = 10": 10, "s = 100": 100, "s = 1,000": 1000, "no bound": NO_BOUND,
}  # fmt: skip
SMALL = "s = 10"  # the paper's 100, by its share of an epoch; its caches tell hits from misses
ROWS_LR, DENSE = 1.0, {"lr": 3e-3}
PAPER = {  # AUC by s: 0, 100, 10,000, no bound (ours is a DFM); of WDL also with and without misses, s = 0 and 100
    "WDL": (0.7964, 0.7962, 0.7884, 0.7461),
    "DFM": (0.7974, 0.7973, 0.7896, 0.7091),
    "DCN": (0.8025, 0.8024, 0.7976, 0.7529),
    "hit": (0.8017, 0.8015),
    "miss": (0.7817, 0.7812),
}
Flags = NDArray[np.bool_]
Aucs = dict[str, float]  # of all test rows, those that hit, those that miss


@dataclass(frozen=True, slots=True)
class Table2Size:
    """How much is trained."""

    batches: int = 4_000  # of each worker
    test_rows: int = 1_000_000
    ids: int = 20_000

    @property
    def cache_rows(self) -> int:
        """Of each worker: a tenth of the ids."""
        return max(1, self.ids // 10)

    def task(self) -> TrainingTask:
        """One day to train on, and the next to test."""
        return TrainingTask(
            days=2,
            train_rows=self.batches * WORKERS * LOCAL_BATCH,
            test_rows=self.test_rows,
            ids=self.ids,
            drift=0.0,
            new_ids=0.0,
            model_settings={"hidden": [32]},
        )


FULL, QUICK = Table2Size(), Table2Size(batches=6, test_rows=2_000, ids=500)
CLUSTER = ClusterConfig(
    workers=WORKERS,
    local_batch=LOCAL_BATCH,
    speeds=Speeds(batch_s=5e-3, sample_s=0.0, batches=LogNormal(sigma=0.1)),
    network=Network(latency_s=1e-4, bandwidth="125MB", worker_bandwidth="125MB"),
)


def run(
    quick: bool = False, *, seeds: Sequence[int] | None = None, size: Table2Size | None = None, tell: Tell = silent
) -> dict[str, Any]:
    """AUCs by variant and seed, and their differences from no cache."""
    size = size or (QUICK if quick else FULL)
    seeds = seeds or (SEEDS[:2] if quick else SEEDS)
    by_seed = {}
    for seed in seeds:
        by_seed[seed] = of_seed(size, seed)
        tell(f"seed {seed}: " + ", ".join(f"{name} {each['all']:.4f}" for name, each in by_seed[seed][0].items()))
    return compared(size, by_seed)


def of_seed(size: Table2Size, seed: int) -> tuple[dict[str, Aucs], float]:
    """AUCs by variant, and the share of the test rows that hit."""
    scores: dict[str, NDArray[np.float32]] = {}
    hit: Flags = np.empty(0, np.bool_)
    for name, staleness in VARIANTS.items():
        cache = None if staleness is None else Cache(capacity=size.cache_rows, staleness=staleness)
        scores[name], cached = trained(size, seed, cache, SGD(lr=ROWS_LR))
        hit = cached if name == SMALL and cached is not None else hit
    return {name: _aucs(size, seed, mine, hit) for name, mine in scores.items()}, float(hit.mean())


def compared(size: Table2Size, by_seed: Mapping[int, tuple[dict[str, Aucs], float]]) -> dict[str, Any]:
    """The result."""
    seeds = list(by_seed)
    found = {name: {seed: by_seed[seed][0][name] for seed in seeds} for name in VARIANTS}
    return {
        "settings": {
            **asdict(size), "seeds": seeds, "workers": WORKERS, "local_batch": LOCAL_BATCH, "rows_lr": ROWS_LR,
            "dense": DENSE, "cache_rows": size.cache_rows,
        },
        "paper": PAPER,
        "hit_share": fmean(share for _, share in by_seed.values()),
        "variants": {name: _compared(found, name) for name in VARIANTS},
        "promises": _promises(found),
    }  # fmt: skip


def trained(
    size: Table2Size, seed: int, cache: Cache | None, rows: AnyOptimizer
) -> tuple[NDArray[np.float32], Flags | None]:
    """Scores of the test rows; and which of them hit the cache of the worker that they would go to in turn."""
    model = Model(size.task(), PaperHyper(rows, "Adam", DENSE), seed, cache=cache)
    try:
        Chain(model).train(Hybrid(), CLUSTER, 0)
        return model.outputs(1), _hits(model) if isinstance(model.tables, SimCachedTables) else None
    finally:
        model.close()


def _hits(model: Model) -> Flags:
    assert isinstance(model.tables, SimCachedTables)
    batch = model.task.test(model.seed, 1)
    keys = np.concatenate([part.keys.reshape(len(batch), -1) for part in batch.parts], axis=1).view(np.uint64)
    hit = np.empty(len(batch), np.bool_)
    for worker, caches in model.tables.sim.caches.items():
        mine = keys[worker::WORKERS]
        there = caches["default"].tier.versions(np.ascontiguousarray(mine).reshape(-1)) > 0
        hit[worker::WORKERS] = there.reshape(mine.shape).all(axis=1)
    return hit


def _aucs(size: Table2Size, seed: int, scores: NDArray[np.float32], hit: Flags) -> Aucs:
    labels = size.task().test(seed, 1).labels
    assert labels is not None
    parts = {"all": np.ones(len(hit), np.bool_), "hit": hit, "miss": ~hit}
    found = {name: auc(labels[which, 0], scores[which]) for name, which in parts.items()}
    return {name: each for name, each in found.items() if each is not None}


def _of(by_seed: Mapping[int, Aucs], part: str) -> dict[int, float]:
    return {seed: aucs[part] for seed, aucs in by_seed.items() if part in aucs}


def _compared(found: Mapping[str, Mapping[int, Aucs]], name: str) -> dict[str, Any]:
    mine, none = found[name], found["no cache"]
    parts = [part for part in ("all", "hit", "miss") if len(_of(mine, part)) == len(mine)]
    return {
        "auc": {str(seed): aucs for seed, aucs in mine.items()},
        "mean": {part: fmean(_of(mine, part).values()) for part in parts},
        "minus_no_cache": {part: paired(_of(mine, part), _of(none, part)) for part in parts},
        "minus_s_0": {part: paired(_of(mine, part), _of(found["s = 0"], part)) for part in parts},
    }


def _promises(found: Mapping[str, Mapping[int, Aucs]]) -> list[dict[str, Any]]:
    def gap(name: str, other: str = "no cache", part: str = "all") -> Any:
        return paired(_of(found[name], part), _of(found[other], part))

    near, far, strict = gap(SMALL), gap("no bound"), gap("s = 0")
    return [
        promise("s = 0 is not below no cache by more than 0.002", not below(strict) or strict["mean"] > -0.002,
                words(strict)),
        promise("a small s is not below no cache by more than 0.002", not below(near) or near["mean"] > -0.002,
                words(near)),
        promise("rows without a bound are below no cache", below(far), words(far)),
    ]  # fmt: skip


def lines(result: Mapping[str, Any]) -> list[str]:
    """For people."""
    head = ["test AUC", "all rows", "minus no cache", "ids all cached", "minus s = 0", "some id missed", "minus s = 0"]
    rows = []
    for name, each in result["variants"].items():
        cells = [name, f"{each['mean']['all']:.4f}", "" if name == "no cache" else words(each["minus_no_cache"]["all"])]
        for part in ("hit", "miss"):
            there = part in each["mean"]
            cells.append(f"{each['mean'][part]:.4f}" if there else "-")
            cells.append(words(each["minus_s_0"][part]) if there and name != "s = 0" else "")
        rows.append(cells)
    paper = result["paper"]
    papers = [
        f"the paper, {name}: " + ", ".join(f"{value:.4f}" for value in paper[name]) for name in ("WDL", "DFM", "DCN")
    ]
    split = f"of the test rows {100 * result['hit_share']:.0f} % have all their ids in a cache"
    return [*table(head, rows), split, "", *papers, *promise_lines(result)]
