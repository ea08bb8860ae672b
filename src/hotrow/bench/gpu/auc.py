"""AUC of DeepFM in bfloat16 and compiled, beside float32, on a stream that a teacher labels.

The teacher has a weight and a short vector for each id and adds weights and products as DeepFM does, so the stream
can be learned. All variants of a seed have the same first weights, batches and test rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from statistics import mean, stdev

import torch
from torch import Tensor

from hotrow.bench.gpu.networks import NUMBERS, DeepFmNetwork
from hotrow.bench.gpu.plan import GpuPlan
from hotrow.bench.gpu.training import ADAGRAD, OwnTable, Training, TrainingBatch, adam, seeded
from hotrow.bench.gpu.workload import keys_of, matrix_precision
from hotrow.store.hbm import HbmSpec, HbmTier

TEACHER_DIM = 4


@dataclass(frozen=True, slots=True)
class Precision:
    """How the dense part is computed."""

    precision: str = "highest"
    dtype: torch.dtype = torch.float32
    compiled: bool = False


VARIANTS = {
    "float32": Precision(),
    "tf32": Precision("high"),
    "bf16": Precision("high", torch.bfloat16),
    "compiled": Precision(compiled=True),
}


class TeacherStream:
    """Batches of a teacher: ids by Zipf, numbers by chance, labels by its odds."""

    def __init__(self, device: torch.device, plan: GpuPlan, seed: int) -> None:
        self._plan, self._device = plan, device
        self._random = torch.Generator(device).manual_seed(seed)
        weights = torch.arange(1, plan.auc_ids + 1, dtype=torch.float64, device=device).pow_(-plan.skew)
        self._sums = weights.cumsum_(0)
        self._weights = self._normal(plan.auc_ids) * (1.5 / plan.fields**0.5)
        self._vectors = self._normal(plan.auc_ids, TEACHER_DIM) * (2 / plan.fields**2 / TEACHER_DIM) ** 0.25
        self._of_numbers = self._normal(NUMBERS) * 0.2

    def batch(self) -> TrainingBatch:
        samples, fields = self._plan.samples, self._plan.fields
        drawn = torch.rand(samples * fields, dtype=torch.float64, device=self._device, generator=self._random)
        ids = torch.searchsorted(self._sums, drawn * self._sums[-1]).clamp_(max=self._plan.auc_ids - 1)
        numbers = self._normal(samples, NUMBERS)
        vectors = self._vectors[ids].view(samples, fields, -1)
        products = 0.5 * (vectors.sum(1).square() - vectors.square().sum(1)).sum(1)
        odds = self._weights[ids].view(samples, fields).sum(1) + products + numbers @ self._of_numbers
        chance = torch.rand(samples, device=self._device, generator=self._random)
        return TrainingBatch(ids, numbers, (chance < odds.sigmoid()).float())

    def _normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, device=self._device, generator=self._random)


def auc_figures(device: torch.device, plan: GpuPlan) -> Iterator[tuple[str, float]]:
    """Means over seeds; `_change` is the mean of the paired differences to float32, `_change_sd` their deviation."""
    yield "auc_seeds", float(plan.auc_seeds)
    base: list[float] = []
    for name, variant in VARIANTS.items():
        found = [trained_auc(device, plan, seed, variant) for seed in range(plan.auc_seeds)]
        base = base or found
        yield f"auc_{name}", mean(found)
        if found is not base:
            changes = [value - before for value, before in zip(found, base, strict=True)]
            yield f"auc_{name}_change", mean(changes)
            yield f"auc_{name}_change_sd", stdev(changes)


def trained_auc(device: torch.device, plan: GpuPlan, seed: int, variant: Precision) -> float:
    """AUC on test rows after one pass over the stream of a seed."""
    stream = TeacherStream(device, plan, seed)
    tests = [stream.batch() for _ in range(plan.auc_test_batches)]
    spec = HbmSpec(dim=plan.dim, capacity=max(128, 2 * plan.auc_ids), rule=ADAGRAD, seed=seed)
    table = OwnTable(HbmTier(spec, device), variant.dtype)
    network = seeded(partial(DeepFmNetwork, plan.fields, plan.dim, kernels=True), device, seed)
    if variant.compiled:
        network.compile(backend=plan.compiler)
    training = Training(network, table, adam(network), None if variant.dtype == torch.float32 else variant.dtype)
    with matrix_precision(variant.precision):
        for _ in range(plan.auc_steps):
            training.step(stream.batch())
        with torch.no_grad():
            scores = [training.odds(_rows(table, batch, plan), batch) for batch in tests]
    return area_under_curve(torch.cat(scores), torch.cat([batch.labels for batch in tests]))


def _rows(table: OwnTable, batch: TrainingBatch, plan: GpuPlan) -> Tensor:
    found = table.tier.pool(table.tier.find_or_init(table.tier.batch(keys_of(batch.ids))), dtype=table.dtype)
    return found.view(plan.samples, plan.fields, plan.dim)


def area_under_curve(scores: Tensor, labels: Tensor) -> float:
    """The share of pairs of a positive and a negative in the right order; equal scores count as half."""
    _, which, counts = torch.unique(scores.float(), return_inverse=True, return_counts=True)
    ranks = counts.cumsum(0).double() - (counts - 1) / 2  # the mean rank of equal scores, from 1
    positives = labels.sum(dtype=torch.float64)
    above = ranks[which].mul(labels).sum() - positives * (positives + 1) / 2
    return float(above / (positives * (len(labels) - positives)))
