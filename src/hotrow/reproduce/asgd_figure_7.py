"""ASGD Fig. 7: ten days one after the other with Adagrad, with decayed Adagrad, and with Adagrad under SWAP.

One worker trains in order; after each day the model is tested on the next. With drift a fifth of the ids gets new
weights every night, so that old clicks mislead; without it every click stays as good as new, and forgetting can only
cost.

The paper's day is 12 million steps, its period 14 million, its lambda 0.999999 a step. So v is multiplied by 0.8 once
in 7/6 of a day, and the rival forgets within a twelfth of one. Ours are the same parts of our day. Lambda as printed is
there too: in a day as short as ours it forgets nothing. So is SWAP with five periods a day.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch

from hotrow.modes import Sync
from hotrow.optim.dense import SwapOptimizer
from hotrow.optim.sparse import Adagrad, DecayedAdagrad, Swap
from hotrow.reproduce.asgd_comparison import above, paired, words
from hotrow.reproduce.days import Chain
from hotrow.reproduce.results import Tell, promise, promise_lines, table
from hotrow.reproduce.task import Model, PaperHyper, TrainingTask
from hotrow.sim.config import ClusterConfig

SEEDS = (1, 2, 3, 4, 5)
ROWS_LR, DENSE_LR = 0.1, 0.03  # Adagrad's best after the first day
DECAYED_LR_PART = 1 / 3  # of the learning rate whose first step is as long as Adagrad's; also the best after a day
DECAY = 0.8
PERIOD_DAYS, SHORT_PERIOD_DAYS = 7 / 6, 1 / 5
PRINTED_RATE = 0.999999
RIVAL_DAYS = 1 / 12  # what 0.999999 remembers of the paper's day: a million steps
DRIFTS = {"drift": 0.2, "no drift": 0.0}
PAPER = "swap above decayed and adagrad, which stay where they are after 3 or 4 days"

Curves = Mapping[str, Mapping[int, list[float]]]  # by optimizer and seed: AUCs by day


@dataclass(frozen=True, slots=True)
class Figure7Size:
    """How much is trained."""

    days: int = 10
    day_samples: int = 128 * 1024
    batch: int = 256
    test_rows: int = 100_000
    ids: int = 3000

    def task(self, drift: float) -> TrainingTask:
        """The stream, one day longer than the training."""
        return TrainingTask(
            days=self.days + 1,
            train_rows=self.day_samples,
            test_rows=self.test_rows,
            features=6,
            numbers=4,
            ids=self.ids,
            drift=drift,
            new_ids=0.0,
            dim=5,
            model_settings={"hidden": [16]},
        )


FULL = Figure7Size()
QUICK = Figure7Size(days=3, day_samples=2048, batch=64, test_rows=2048, ids=200)


@dataclass(frozen=True, slots=True)
class SwapHyper(PaperHyper):
    """Dense parameters forget as the rows do."""

    swap: Swap

    def optimizer(self, parameters: Sequence[torch.nn.Parameter]) -> torch.optim.Optimizer:
        return SwapOptimizer(PaperHyper.optimizer(self, parameters), self.swap)


def hypers(size: Figure7Size) -> dict[str, PaperHyper]:
    """Every optimizer, for rows and dense parameters alike."""
    rate = 1 - 1 / max(2.0, RIVAL_DAYS * size.day_samples / size.batch)
    return {
        "adagrad": PaperHyper(Adagrad(lr=ROWS_LR), "Adagrad", {"lr": DENSE_LR, "fused": True}),
        "decayed as printed": decayed(PRINTED_RATE, 1.0),
        "decayed": decayed(rate, DECAYED_LR_PART),
        "swap": swapped(Swap(period=round(PERIOD_DAYS * size.day_samples), decay=DECAY)),
        "swap, five a day": swapped(Swap(period=round(SHORT_PERIOD_DAYS * size.day_samples), decay=DECAY)),
    }


def decayed(rate: float, lr_part: float) -> PaperHyper:
    """v is a mean where Adagrad's is a sum: a first step as long takes sqrt(1 - rate) of the learning rate.

    For dense parameters torch calls it RMSprop.
    """
    part = lr_part * (1 - rate) ** 0.5
    dense = {"lr": DENSE_LR * part, "alpha": rate, "eps": 1e-10}
    return PaperHyper(DecayedAdagrad(lr=ROWS_LR * part, rate=rate), "RMSprop", dense)


def swapped(swap: Swap) -> PaperHyper:
    """Adagrad under SWAP."""
    return SwapHyper(Adagrad(lr=ROWS_LR, swap=swap), "Adagrad", {"lr": DENSE_LR, "fused": True}, swap)


def run(
    quick: bool = False, *, seeds: Sequence[int] | None = None, size: Figure7Size | None = None, tell: Tell = print
) -> dict[str, Any]:
    """AUC of the next day by drift, optimizer, seed and day, and the differences from Adagrad."""
    size = size or (QUICK if quick else FULL)
    seeds = seeds or (SEEDS[:2] if quick else SEEDS)
    parts: dict[str, Any] = {}
    for drift, share in DRIFTS.items():
        curves: dict[str, dict[int, list[float]]] = {name: {} for name in hypers(size)}
        for seed in seeds:
            for name, hyper in hypers(size).items():
                curves[name][seed] = trained(size, hyper, share, seed)
                tell(f"{drift}, seed {seed}, {name}: " + " ".join(f"{auc:.4f}" for auc in curves[name][seed]))
        parts[drift] = {"optimizers": compared(curves), "old": old_model(size, share, seeds[0])}
    return {"settings": _settings(size, seeds), "paper": PAPER, **parts, "promises": _promises(parts)}


def trained(size: Figure7Size, hyper: PaperHyper, drift: float, seed: int) -> list[float]:
    """One optimizer over all days: the AUC of the day after each."""
    chain = Chain(Model(size.task(drift), hyper, seed))
    aucs = []
    for day in range(size.days):
        chain.train(Sync(), ClusterConfig(workers=1, local_batch=size.batch), day)
        aucs.append(chain.model.auc(day + 1))
    chain.model.close()
    return aucs


def old_model(size: Figure7Size, drift: float, seed: int) -> dict[str, float]:
    """How much old clicks mislead: a model of the first day alone, on the second day and on the last."""
    chain = Chain(Model(size.task(drift), hypers(size)["adagrad"], seed))
    chain.train(Sync(), ClusterConfig(workers=1, local_batch=size.batch), 0)
    found = {"next_day": chain.model.auc(1), "last_day": chain.model.auc(size.days)}
    chain.model.close()
    return found


def compared(curves: Curves) -> dict[str, Any]:
    """Means by day, and differences from Adagrad by day and over the second half of the days."""
    days = len(next(iter(curves["adagrad"].values())))
    late = {name: _means(by_seed, days // 2) for name, by_seed in curves.items()}
    return {
        name: {
            "auc": {str(seed): aucs for seed, aucs in by_seed.items()},
            "mean_by_day": [fmean(_of_day(by_seed, day).values()) for day in range(days)],
            "late_mean": fmean(late[name].values()),
            "late_minus_adagrad": paired(late[name], late["adagrad"]),
            "late_minus_decayed": paired(late[name], late["decayed"]),
            "minus_adagrad_by_day": [
                paired(_of_day(by_seed, day), _of_day(curves["adagrad"], day)) for day in range(days)
            ],
        }
        for name, by_seed in curves.items()
    }


def _of_day(by_seed: Mapping[int, list[float]], day: int) -> dict[int, float]:
    return {seed: aucs[day] for seed, aucs in by_seed.items()}


def _means(by_seed: Mapping[int, list[float]], first: int) -> dict[int, float]:
    return {seed: fmean(aucs[first:]) for seed, aucs in by_seed.items()}


def _settings(size: Figure7Size, seeds: Sequence[int]) -> dict[str, Any]:
    described = {
        name: {
            "rows": hyper.rows.model_dump(mode="json"),
            "dense": hyper.dense,
            "dense_settings": dict(hyper.dense_settings),
        }
        for name, hyper in hypers(size).items()
    }
    return {
        "seeds": list(seeds),
        "days": size.days,
        "samples_per_day": size.day_samples,
        "batch": size.batch,
        "test_rows": size.test_rows,
        "ids": size.ids,
        "drift": DRIFTS,
        "optimizers": described,
    }


def _promises(parts: Mapping[str, Any]) -> list[dict[str, Any]]:
    swap = parts["drift"]["optimizers"]["swap"]
    printed = parts["drift"]["optimizers"]["decayed as printed"]
    gap, rival, alike = swap["late_minus_adagrad"], swap["late_minus_decayed"], printed["late_minus_adagrad"]
    return [
        promise("with drift SWAP is above Adagrad in the second half of the days", above(gap), words(gap)),
        promise("with drift SWAP is above decayed Adagrad that forgets a twelfth of a day", above(rival), words(rival)),
        promise("decayed Adagrad with lambda 0.999999 is not above Adagrad", not above(alike), words(alike)),
    ]


def lines(result: Mapping[str, Any]) -> list[str]:
    """For people."""
    told: list[str] = []
    for drift in DRIFTS:
        part = result[drift]
        days = range(1, result["settings"]["days"] + 1)
        head = [f"AUC of the next day, {drift}", *(f"day {day}" for day in days), "second half", "minus Adagrad"]
        rows = [
            [name, *(f"{auc:.4f}" for auc in each["mean_by_day"]), f"{each['late_mean']:.4f}",
             "" if name == "adagrad" else words(each["late_minus_adagrad"])]
            for name, each in part["optimizers"].items()
        ]  # fmt: skip
        old = part["old"]
        aged = f"a model of day 1 alone: {old['next_day']:.4f} on day 2, {old['last_day']:.4f} on the last"
        told += [*table(head, rows), aged, ""]
    return [*told, f"the paper: {result['paper']}", *promise_lines(result)]
