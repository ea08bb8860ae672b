"""Whoever trains the same DeepFM in `hotrow bench train`: the network is the same module for all, tables differ.

Peers number their rows from 0; the file holds such numbers, in an order that has nothing to do with their frequency.
"""

import warnings
from importlib.util import find_spec
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from hotrow.bench.train_plan import TrainPlan
from hotrow.data.batch import Batch
from hotrow.models.deepfm import DeepFM
from hotrow.models.layers import Activation
from hotrow.nn.inputs import Inputs, InputShape
from hotrow.worker.losses import binary_cross_entropy

EPS = 1e-10
TORCHREC_REMEDY = "TorchRec is not installed, its columns stay empty: `make bench` installs it"


class TrainingPeer(Protocol):
    """A contestant."""

    def step(self, batch: Batch) -> None:
        """Train on one batch, whole: lookup, network, both updates."""


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


class TorchRecTrained:
    """TorchRec's fused EmbeddingBagCollection on FBGEMM: one table for all features, Adagrad exact or row-wise."""

    def __init__(self, plan: TrainPlan, dim: int, hidden: tuple[int, ...], *, rowwise: bool) -> None:
        self._names = [f"c{place}" for place in range(plan.features)]
        self._collection, self._jagged = _torchrec(plan, dim, self._names, rowwise)
        self._dense = DensePart(plan, dim, hidden)
        self._shape = (-1, plan.features, dim)

    def step(self, batch: Batch) -> None:
        ids = torch.from_numpy(batch.parts[0].keys).view(len(batch), -1)
        values = ids.t().contiguous().view(-1)  # its layout is feature by feature
        lengths = torch.ones(len(values), dtype=torch.int32)
        features = self._jagged(keys=self._names, values=values, lengths=lengths)
        self._dense.train(self._collection(features).values().view(self._shape), batch)  # updates rows in backward


def torchrec_present() -> bool:
    """Whether TorchRecTrained can be made here."""
    return find_spec("torchrec") is not None and find_spec("fbgemm_gpu") is not None


def _torchrec(plan: TrainPlan, dim: int, names: list[str], rowwise: bool) -> tuple[Any, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Imported here: the package is optional and takes seconds to load.
        from torchrec.modules.embedding_configs import EmbeddingBagConfig
        from torchrec.modules.fused_embedding_modules import FusedEmbeddingBagCollection
        from torchrec.optim.rowwise_adagrad import RowWiseAdagrad
        from torchrec.sparse.jagged_tensor import KeyedJaggedTensor
    table = EmbeddingBagConfig(name="t", embedding_dim=dim, num_embeddings=plan.rows, feature_names=names)
    collection = FusedEmbeddingBagCollection(
        tables=[table],
        optimizer_type=RowWiseAdagrad if rowwise else torch.optim.Adagrad,
        optimizer_kwargs={"lr": plan.lr, "eps": EPS},
        device=torch.device("cpu"),
    )
    with torch.no_grad():
        for weight in collection.state_dict().values():
            weight.uniform_(-0.01, 0.01)
    return collection, KeyedJaggedTensor.from_lengths_sync
