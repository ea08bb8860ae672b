"""TorchRec as a peer: its tables in `hotrow bench train`, its ranks over gloo in `hotrow bench cluster`."""

import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torchrec_ranks import TorchRecRanks

from hotrow.bench.cluster.plan import ClusterPlan
from hotrow.bench.network import DensePart
from hotrow.bench.peers import EPS, Adapter
from hotrow.bench.train_plan import TrainPlan
from hotrow.data.batch import Batch


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


class TorchRecCluster:
    """Two ranks, timed in the same steps of a stretch as ours."""

    def __init__(self, plan: ClusterPlan, dim: int, hidden: tuple[int, ...], file: Path) -> None:
        self._plan = plan
        self._ranks = TorchRecRanks(plan.train, dim, hidden, file)

    def step_s(self, turn: int) -> float:
        """Seconds of a step of the slowest rank."""
        self._ranks.segment(turn)
        return inner_step_s(self._plan, self._ranks.moments)

    def close(self) -> None:
        self._ranks.close()


def inner_step_s(plan: ClusterPlan, moments: list[list[float]]) -> float:
    """Seconds of a step of the slowest rank, without the first and last steps of a stretch."""
    steps = plan.steps - plan.skipped - plan.tail
    return max((each[plan.skipped - 1 + steps] - each[plan.skipped - 1]) / steps for each in moments)


def lack() -> str | None:
    """What is missing to run TorchRec here."""
    there = find_spec("torchrec") is not None and find_spec("fbgemm_gpu") is not None
    return None if there else "TorchRec is not installed: `make bench` installs it"


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


ADAPTER = Adapter(
    name="torchrec",
    title="TorchRec",
    versions={"torchrec": "torchrec", "fbgemm": "fbgemm-gpu-cpu"},
    lack=lack,
    training=TorchRecTrained,
    cluster=TorchRecCluster,
)
