"""The ids that workers train on, as traces: for each worker the distinct ids of its batches, one after the other.

A trace begins with batches that fill the cache and are not counted. Most of them stand for many steps: they hold the
distinct ids of these steps, once.
"""

import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hotrow.bench.cache.plan import DATA_SETS, CachePlan, zipf_name
from hotrow.bench.cache.skew import fitted_exponent, presence, weights
from hotrow.bench.ids import keys_of
from hotrow.data.config import DataConfig, open_source
from hotrow.data.loader import Loader
from hotrow.store.arrays import Keys

U64 = NDArray[np.uint64]

CRITEO = "criteo_dac80k/criteo_dac80k.tsv.gz"
GOWALLA = "gowalla/train.txt.gz"
READ = 4096  # samples at once
WARM_EPOCHS, WARM_BATCHES = 4, 16  # of a data set, that fill the cache


@dataclass(frozen=True, slots=True, eq=False)
class IdTrace:
    """Batches of distinct ids by worker: first those that fill the cache, then those that are counted."""

    name: str
    rows: int  # ids that there are
    warm: list[list[Keys]]
    steps: list[list[Keys]]
    exponent: float | None = None  # of its Zipf law

    @property
    def workers(self) -> int:
        return len(self.steps)

    @property
    def distinct(self) -> float:
        """Ids of a counted batch, in the mean."""
        return float(np.mean([len(batch) for batches in self.steps for batch in batches]))


def traces(plan: CachePlan, folder: Path | None) -> Iterator[IdTrace]:
    """Those of part bytes: the skew of the paper over all rows and over those of the grid, Zipf laws, data sets."""
    wanted = plan.only or plan.streams
    if "paper_skew" in wanted:
        yield paper_trace(replace(plan, warm=plan.paper_warm), "paper_skew", plan.rows)
    if "paper_skew_grid" in wanted:
        yield paper_trace(plan, "paper_skew_grid", plan.grid_rows)
    for exponent in plan.exponents:
        if zipf_name(exponent) in wanted:
            yield zipf_trace(plan, zipf_name(exponent), plan.grid_rows, exponent)
    if set(wanted) & set(DATA_SETS):
        for name, samples in data_sets(folder):
            if name in wanted:
                yield sample_trace(plan, name, samples, warm_steps(plan, len(samples)))


def paper_trace(plan: CachePlan, name: str, rows: int) -> IdTrace:
    """The law at which a tenth of so many ids takes most of the updates."""
    return zipf_trace(plan, name, rows, fitted_exponent(rows, plan.ids))


def zipf_trace(plan: CachePlan, name: str, rows: int, exponent: float) -> IdTrace:
    """Every id is drawn by itself; all workers draw from one law."""
    rng = np.random.default_rng(plan.seed)
    chances = weights(rows, exponent)
    keys = keys_of(rng.permutation(rows))  # of each rank
    warm: list[list[Keys]] = [[] for _ in range(plan.workers)]
    for batches, steps in plan.warm:
        present = presence(chances, steps * plan.ids)
        for mine in warm:
            mine += [keys[np.flatnonzero(rng.random(rows) < present)] for _ in range(batches)]
    cumulative = np.cumsum(chances)
    counted = [
        [keys[np.unique(_ranks(cumulative, rng.random(plan.ids)))] for _ in range(plan.steps)]
        for _ in range(plan.workers)
    ]
    return IdTrace(name, rows, warm, counted, exponent)


def _ranks(cumulative: NDArray[np.float64], uniform: NDArray[np.float64]) -> NDArray[np.intp]:
    last = len(cumulative) - 1  # rounding may lift the largest draw to the very end
    found: NDArray[np.intp] = np.searchsorted(cumulative, uniform * cumulative[-1], side="right").clip(max=last)
    return found


def data_sets(folder: Path | None) -> Iterator[tuple[str, U64]]:
    """Those that are in the folder, by name: the ids of each sample."""
    if folder is not None and (folder / CRITEO).is_file():
        yield "criteo", criteo_samples(folder / CRITEO)
    if folder is not None and (folder / GOWALLA).is_file():
        yield "gowalla", gowalla_samples(folder / GOWALLA)


def warm_steps(plan: CachePlan, samples: int) -> list[int]:
    """Steps in each batch that fills the cache, for a data set: some epochs, then single steps."""
    of_epoch = samples / plan.global_samples
    return [ceil(WARM_EPOCHS * of_epoch / WARM_BATCHES)] * WARM_BATCHES + [1] * plan.warm[-1][0]


def sample_trace(plan: CachePlan, name: str, samples: U64, sizes: Sequence[int]) -> IdTrace:
    """Batches of samples [samples, ids], in a new order in every epoch. `sizes`: steps in each that fills the cache."""
    rng = np.random.default_rng(plan.seed)
    need = plan.global_samples * (sum(sizes) + plan.steps)
    order = np.concatenate([rng.permutation(len(samples)) for _ in range(-(-need // len(samples)))])
    start = 0

    def batch(steps: int) -> Keys:
        nonlocal start
        taken = order[start : start + steps * plan.samples]
        start += len(taken)
        found: Keys = np.unique(samples[taken])
        return found

    by_step = [[batch(steps) for _ in range(plan.workers)] for steps in (*sizes, *[1] * plan.steps)]
    by_worker = [list(mine) for mine in zip(*by_step, strict=True)]
    warm = [mine[: len(sizes)] for mine in by_worker]
    return IdTrace(name, len(np.unique(samples)), warm, [mine[len(sizes) :] for mine in by_worker])


def criteo_samples(path: Path) -> U64:
    """The 26 ids of each sample."""
    source = open_source(DataConfig(format="criteo", train=str(path)), str(path))
    found: Sequence[U64] = [
        np.hstack([part.keys.view(np.uint64).reshape(len(batch), -1) for part in batch.parts])
        for _, batch in Loader(source, READ)
    ]
    return np.concatenate(found)


def gowalla_samples(path: Path) -> U64:
    """User and place of each visit; places have keys of their own."""
    with gzip.open(path, "rt") as lines:
        visits = [(int(user), int(place)) for user, *places in map(str.split, lines) for place in places]
    pairs = np.array(visits, np.int64)
    return keys_of(pairs * 2 + np.array([0, 1]))
