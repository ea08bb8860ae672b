"""The DeepFM that everyone trains in `hotrow bench train` and `cluster`: one module, on rows of different tables."""

import torch
from torch import Tensor, nn

from hotrow.bench.train_plan import TrainPlan
from hotrow.data.batch import Batch
from hotrow.models.deepfm import DeepFM
from hotrow.models.layers import Activation
from hotrow.nn.inputs import Inputs, InputShape
from hotrow.worker.losses import binary_cross_entropy


def network(
    plan: TrainPlan, dim: int, hidden: tuple[int, ...], seed: int = 0, activation: Activation = "relu"
) -> tuple[nn.Module, torch.optim.Optimizer]:
    """The dense side, the same for everyone."""
    torch.manual_seed(seed)
    fields = {f"c{place}": dim for place in range(plan.features)}
    model = DeepFM(InputShape(plan.numbers, fields), hidden=hidden, activation=activation)
    return model, torch.optim.Adam(model.parameters(), lr=plan.dense_lr, fused=True)


class DensePart:
    """Forward, loss, backward and the dense update, on rows that somebody else looked up."""

    def __init__(self, plan: TrainPlan, dim: int, hidden: tuple[int, ...]) -> None:
        self._model, self._optimizer = network(plan, dim, hidden)
        self._names = tuple(f"c{place}" for place in range(plan.features))

    def train(self, rows: Tensor, batch: Batch) -> None:
        assert batch.labels is not None
        x = Inputs(torch.from_numpy(batch.numbers), {self._names: rows})
        loss = binary_cross_entropy(self._model(x), torch.from_numpy(batch.labels))
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()


class NetworkAlone:
    """No table at all: what the dense side takes."""

    def __init__(self, plan: TrainPlan, dim: int, hidden: tuple[int, ...]) -> None:
        self._dense = DensePart(plan, dim, hidden)
        self._rows = torch.empty(plan.samples, plan.features, dim).uniform_(-0.01, 0.01).requires_grad_()

    def repeat(self, batch: Batch, times: int) -> None:
        """Train on one batch again and again: nothing is read and nothing is looked up."""
        for _ in range(times):
            self._rows.grad = None
            self._dense.train(self._rows, batch)
