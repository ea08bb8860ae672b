"""An adapter for `hotrow bench --peer` without any other system: plain torch under another name."""

from hotrow.bench.cluster.plan import Hidden
from hotrow.bench.peers import Adapter, StorePeer, TrainingPeer
from hotrow.bench.torch_peers import TorchByHand, TorchPeer, TorchTrained
from hotrow.bench.train_plan import TrainPlan


def table(rows: int, dim: int, *, lr: float, rowwise: bool) -> StorePeer:
    return TorchPeer(rows, dim, lr=lr)


def training(plan: TrainPlan, dim: int, hidden: Hidden, *, rowwise: bool) -> TrainingPeer:
    return TorchByHand(plan, dim, hidden) if rowwise else TorchTrained(plan, dim, hidden)


ADAPTER = Adapter(
    name="copy", title="a copy", versions={"copy": "torch"}, lack=lambda: None, store=table, training=training
)
