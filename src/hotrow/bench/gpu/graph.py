"""A training step whose network is one CUDA graph: forward, backward and Adam, for batches of one size."""

import torch
from torch import Tensor, nn

from hotrow.bench.gpu.training import OwnTable, Training, TrainingBatch
from hotrow.bench.gpu.workload import keys_of
from hotrow.store.hbm import HbmTier

WARM_UP = 3  # steps before the capture, as torch asks for


class _GivenRows(OwnTable):
    """Rows of a table in a tensor that stays, so that a graph finds them."""

    def __init__(self, tier: HbmTier, dtype: torch.dtype, count: int) -> None:
        super().__init__(tier, dtype)
        self.given = torch.zeros(count, tier.spec.dim, dtype=dtype, device=tier.device, requires_grad=True)

    def rows(self, ids: Tensor) -> Tensor:
        return self.given

    def update(self) -> None:
        """The rows are updated behind the graph."""


class GraphTraining:
    """As `Training`. The steps of the capture leave no trace in the network."""

    def __init__(self, network: nn.Module, tier: HbmTier, autocast: torch.dtype | None, like: TrainingBatch) -> None:
        self._table = _GivenRows(tier, autocast or torch.float32, len(like.ids))
        self._batch = TrainingBatch(like.ids, like.numbers.clone(), like.labels.clone())
        optimizer = torch.optim.Adam(network.parameters(), fused=True, capturable=True)
        training = Training(network, self._table, optimizer, autocast)
        first = [each.detach().clone() for each in network.parameters()]
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                self._table.given.grad = None
                training.step(self._batch)
        torch.cuda.current_stream().wait_stream(side)
        self._table.given.grad = None
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._loss = training.step(self._batch)
        with torch.no_grad():
            for parameter, value in zip(network.parameters(), first, strict=True):
                parameter.copy_(value)
                for each in optimizer.state[parameter].values():
                    each.zero_()

    def step(self, batch: TrainingBatch) -> Tensor:
        """Train one batch; returns its loss, which the next step overwrites."""
        table = self._table
        plan = table.tier.find_or_init(table.tier.batch(keys_of(batch.ids)))
        table.tier.pool(plan, dtype=table.dtype, out=table.given.detach())
        self._batch.numbers.copy_(batch.numbers)
        self._batch.labels.copy_(batch.labels)
        self._graph.replay()
        assert table.given.grad is not None
        table.tier.apply(plan, table.given.grad, counted=False)
        return self._loss
