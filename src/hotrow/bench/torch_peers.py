"""Plain torch as a contestant: its table in `hotrow bench store`, and under the DeepFM of `hotrow bench train`."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hotrow.bench.network import DensePart
from hotrow.bench.peers import EPS
from hotrow.bench.train_plan import TrainPlan
from hotrow.data.batch import Batch


class TorchPeer:
    """torch.nn.Embedding(sparse=True) under torch.optim.Adagrad."""

    def __init__(self, rows: int, dim: int, *, lr: float) -> None:
        # A choice has to be made or torch warns; leaving the checks out is what makes it fast.
        checks: Any = torch.sparse.check_sparse_tensor_invariants
        checks.disable()
        first = torch.empty(rows, dim).uniform_(-0.01, 0.01)
        self._embedding = nn.Embedding(rows, dim, sparse=True, _weight=first)
        self._optimizer = torch.optim.Adagrad(self._embedding.parameters(), lr=lr, eps=EPS)
        self.values = self._embedding.weight.detach()
        self.state = self._optimizer.state[self._embedding.weight]["sum"]

    def step(self, rows: NDArray[np.int64], gradients: Tensor) -> None:
        self._embedding(torch.from_numpy(rows)).backward(gradients)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)


class TorchTrained:
    """torch.nn.EmbeddingBag(sparse=True) under torch.optim.Adagrad."""

    def __init__(self, plan: TrainPlan, dim: int, hidden: tuple[int, ...]) -> None:
        checks: Any = torch.sparse.check_sparse_tensor_invariants
        checks.disable()  # a choice has to be made or torch warns; without them it is faster
        first = torch.empty(plan.rows, dim).uniform_(-0.01, 0.01)
        self._bags = nn.EmbeddingBag(plan.rows, dim, mode="sum", sparse=True, _weight=first)
        self._sparse = torch.optim.Adagrad(self._bags.parameters(), lr=plan.lr, eps=EPS)
        self._dense = DensePart(plan, dim, hidden)
        self._shape = (-1, plan.features, dim)

    def step(self, batch: Batch) -> None:
        ids = torch.from_numpy(batch.parts[0].keys)
        rows = self._bags(ids, torch.arange(len(ids))).view(self._shape)
        self._sparse.zero_grad(set_to_none=True)
        self._dense.train(rows, batch)
        self._sparse.step()


class TorchByHand:
    """What a careful user writes: `unique`, a small leaf, its gradient summed by index_add, row-wise Adagrad."""

    def __init__(self, plan: TrainPlan, dim: int, hidden: tuple[int, ...]) -> None:
        self._values = torch.empty(plan.rows, dim).uniform_(-0.01, 0.01)
        self._moment = torch.zeros(plan.rows)
        self._dense = DensePart(plan, dim, hidden)
        self._shape, self._lr = (-1, plan.features, dim), plan.lr

    def step(self, batch: Batch) -> None:
        ids, inverse = torch.unique(torch.from_numpy(batch.parts[0].keys), return_inverse=True)
        rows = self._values[ids][inverse].view(self._shape).requires_grad_()
        self._dense.train(rows, batch)
        assert rows.grad is not None
        flat = rows.grad.view(len(inverse), -1)
        gradient = torch.zeros(len(ids), flat.shape[1]).index_add_(0, inverse, flat)
        self._moment.index_add_(0, ids, gradient.square().mean(1))
        rate = -self._lr / (self._moment[ids].sqrt() + EPS)
        self._values.index_add_(0, ids, gradient * rate[:, None])
