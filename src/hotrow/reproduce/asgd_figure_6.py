"""ASGD Fig. 6: data normalisation on top of staleness normalisation, with 1,000 and with 3,000 workers.

Clusters, rows, learning rates and the way to count are those of Fig. 5. `DataNorm` stands between every dense layer and
its activation, and takes the mean over the local batch.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from hotrow.reproduce import asgd_figure_5 as figure_5
from hotrow.reproduce.asgd_comparison import above, words
from hotrow.reproduce.asgd_figure_5 import FULL, QUICK, SEEDS, Curve, Figure5Size, TrainedModel
from hotrow.reproduce.results import Tell, promise

PAPER = (
    "with data normalisation above without: by 0.01 with 1,000 workers (around 0.75), by 0.02 with 3,000 (around 0.74)"
)


def curves(size: Figure5Size) -> dict[str, Curve]:
    """All with staleness normalisation, as the paper never uses one without the other."""
    return {
        "few": Curve(size.few, size.ours),
        "few, data norm": Curve(size.few, size.ours, data_norm=True),
        "many": Curve(size.many, size.ours),
        "many, data norm": Curve(size.many, size.ours, data_norm=True),
    }


def run(
    quick: bool = False, *, seeds: Sequence[int] | None = None, size: Figure5Size | None = None, tell: Tell = print
) -> dict[str, Any]:
    """AUC against updates by curve and seed, and differences at the end."""
    size = size or (QUICK if quick else FULL)
    seeds = seeds or (SEEDS[:2] if quick else SEEDS)
    found = figure_5.trained_all(curves(size), size, seeds, tell)
    return {
        "settings": figure_5.settings(size, seeds, curves(size)),
        "paper": PAPER,
        "updates": figure_5.marks(size),
        "curves": figure_5.compared(found, ("few", "many")),
        "promises": [_gains(found, cluster) for cluster in ("few", "many")],
    }


def _gains(found: Mapping[str, Mapping[int, TrainedModel]], cluster: str) -> dict[str, Any]:
    gap = figure_5.last_minus(found, f"{cluster}, data norm", cluster)
    return promise(f"data normalisation is above none with {cluster} workers", above(gap), words(gap))


lines = figure_5.lines
