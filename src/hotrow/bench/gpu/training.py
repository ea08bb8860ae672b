"""Whole training steps: the rows of a batch, a network, its gradients, and both updates.

A table gives the rows of ids as something that gradients flow into, and updates them once the network went backward:
ours in GPU memory, and two that a user would write in plain torch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hotrow.bench.gpu.kernels import torch_adagrad
from hotrow.bench.gpu.networks import NUMBERS
from hotrow.bench.gpu.workload import keys_of
from hotrow.kernels.update_rule import UpdateRule
from hotrow.store.hbm import HbmPlan, HbmTier

ADAGRAD = UpdateRule("adagrad", lr=0.05, initial=1e-12)  # far below a squared gradient: rows learn from the first step


class RowTable(Protocol):
    """Rows of one training step."""

    def rows(self, ids: Tensor) -> Tensor:
        """[ids, dim]; a gradient flows into it."""

    def update(self) -> None:
        """One Adagrad update by the gradients."""


class OwnTable:
    """Rows in GPU memory, of `dtype` for the network."""

    def __init__(self, tier: HbmTier, dtype: torch.dtype = torch.float32) -> None:
        self.tier, self.dtype = tier, dtype
        self._step: tuple[HbmPlan, Tensor] | None = None

    def rows(self, ids: Tensor) -> Tensor:
        plan = self.look_up(ids)
        rows = self.tier.pool(plan, dtype=self.dtype).requires_grad_()
        self._step = plan, rows
        return rows

    def look_up(self, ids: Tensor) -> HbmPlan:
        return self.tier.find_or_init(self.tier.batch(keys_of(ids)))

    def update(self) -> None:
        plan, gradients = _gradients(self._step)
        self.tier.apply(plan, gradients, counted=False)
        self._step = None


class SparseTable:
    """`nn.Embedding(sparse=True)` and `optim.Adagrad`, as torch offers them."""

    def __init__(self, values: Tensor) -> None:
        self._table = nn.Embedding(len(values), values.shape[1], sparse=True, _weight=values)
        self._optimizer = torch.optim.Adagrad(
            self._table.parameters(), lr=ADAGRAD.lr, initial_accumulator_value=ADAGRAD.initial, eps=ADAGRAD.eps
        )

    def rows(self, ids: Tensor) -> Tensor:
        self._optimizer.zero_grad()
        found: Tensor = self._table(ids)
        return found

    def update(self) -> None:
        self._optimizer.step()


class FoldedTable:
    """Plain torch by hand: equal ids are folded before their rows are updated."""

    def __init__(self, values: Tensor, rule: UpdateRule = ADAGRAD) -> None:
        self.values, self.state = values, torch.full_like(values, rule.initial)
        self._step: tuple[Tensor, Tensor] | None = None

    def rows(self, ids: Tensor) -> Tensor:
        rows = F.embedding(ids, self.values).requires_grad_()
        self._step = ids, rows
        return rows

    def update(self) -> None:
        ids, gradients = _gradients(self._step)
        distinct, which = torch.unique(ids, return_inverse=True)
        sums = torch.zeros(len(distinct), self.values.shape[1], device=self.values.device)
        torch_adagrad(self.values, self.state, distinct, sums.index_add_(0, which, gradients.float()))
        self._step = None


LookedUp = TypeVar("LookedUp")


def _gradients(step: tuple[LookedUp, Tensor] | None) -> tuple[LookedUp, Tensor]:
    """What was looked up, and the gradients of its rows."""
    assert step is not None, "update: no rows were looked up"
    assert step[1].grad is not None, "update: the network did not go backward"
    return step[0], step[1].grad


@dataclass(frozen=True, slots=True)
class TrainingBatch:
    ids: Tensor  # int64 [samples * fields]
    numbers: Tensor  # [samples, NUMBERS]
    labels: Tensor  # float32 [samples]

    def to(self, device: torch.device) -> "TrainingBatch":
        return TrainingBatch(self.ids.to(device), self.numbers.to(device), self.labels.to(device))


def made_batches(ids: Tensor, samples: int, seed: int) -> list[TrainingBatch]:
    """Batches of ids [batches, samples * fields], with numbers and labels by chance."""
    random = torch.Generator(ids.device).manual_seed(seed)
    numbers = torch.randn(len(ids), samples, NUMBERS, device=ids.device, generator=random)
    labels = torch.randint(2, (len(ids), samples), device=ids.device, generator=random).float()
    return [TrainingBatch(*each) for each in zip(ids, numbers, labels, strict=True)]


@dataclass(slots=True)
class Training:
    """A network above a table."""

    network: nn.Module
    table: RowTable
    optimizer: torch.optim.Optimizer
    autocast: torch.dtype | None = None

    def step(self, batch: TrainingBatch) -> Tensor:
        """Train one batch; returns its loss, on the device."""
        samples = len(batch.labels)
        rows = self.table.rows(batch.ids)
        loss = F.binary_cross_entropy_with_logits(
            self.odds(rows.view(samples, -1, rows.shape[-1]), batch), batch.labels
        )
        loss.backward()  # type: ignore[no-untyped-call]
        self.table.update()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def odds(self, rows: Tensor, batch: TrainingBatch) -> Tensor:
        with torch.autocast(rows.device.type, self.autocast, enabled=self.autocast is not None):
            found: Tensor = self.network(rows, batch.numbers)
        return found


def adam(network: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(network.parameters(), fused=next(network.parameters()).is_cuda)


def seeded(make: Callable[[], nn.Module], device: torch.device, seed: int) -> nn.Module:
    """A network with the same first weights for the same seed, on any device."""
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        return make().to(device)
