"""With the same first values the trainer's losses are those of a plain torch model with nn.EmbeddingBag."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import hotrow as hr
from hotrow.client import LocalTables
from hotrow.data.batch import Batch, FeatureBlock
from hotrow.nn.inputs import Inputs
from hotrow.trainer import Progress, Trainer

STEPS, SAMPLES, IDS, DIM = 200, 64, 400, 8
KEYS = np.random.default_rng(9).integers(-(2**63), 2**63 - 1, IDS)  # our ids; torch numbers them from 0


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(4 * DIM + 2, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x: Inputs) -> Tensor:
        odds: Tensor = self.layers(torch.cat([x.flat, x.numbers], 1)).squeeze(1)
        return odds


def stream() -> list[tuple[np.ndarray, np.ndarray, np.ndarray, Batch]]:
    """Per step: places of three one-valued features, places and bounds of a bag feature, and our batch of the same."""
    rng = np.random.default_rng(0)
    weights = rng.normal(size=IDS)
    made = []
    for _ in range(STEPS):
        ones = rng.zipf(1.3, (SAMPLES, 3)) % IDS
        lengths = rng.integers(0, 5, SAMPLES)
        bag = rng.integers(0, IDS, lengths.sum())
        bounds = np.concatenate([[0], np.cumsum(lengths)])
        numbers = rng.normal(size=(SAMPLES, 2)).astype(np.float32)
        labels = (rng.random(SAMPLES) < 1 / (1 + np.exp(-weights[ones].sum(1)))).astype(np.float32)
        parts = (
            FeatureBlock("default", "one", ("a", "b", "c"), KEYS[ones.reshape(-1)]),
            FeatureBlock("default", "bags", ("d",), KEYS[bag], bounds, "mean"),
        )
        made.append((ones, bag, bounds, Batch(parts, numbers, labels[:, None])))
    return made


def torch_losses(weight: Tensor, sparse: Callable[[Any], torch.optim.Optimizer]) -> list[float]:
    net = Net()
    bags = nn.EmbeddingBag(IDS, DIM, mode="mean", sparse=True, _weight=weight.clone())
    optimizers = [torch.optim.Adam(net.parameters(), lr=0.01), sparse(bags.parameters())]
    losses = []
    for ones, bag, bounds, batch in stream():
        rows = bags(torch.from_numpy(ones.reshape(-1, 1))).view(SAMPLES, 3, DIM)
        pooled = bags(torch.from_numpy(bag), torch.from_numpy(bounds[:-1])).view(SAMPLES, 1, DIM)
        x = Inputs(torch.from_numpy(batch.numbers), {("a", "b", "c"): rows, ("d",): pooled})
        assert batch.labels is not None
        loss = nn.functional.binary_cross_entropy_with_logits(net(x), torch.from_numpy(batch.labels[:, 0]))
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.item())
    return losses


OPTIMIZERS = {
    "sgd": (hr.SGD(lr=0.5), lambda p: torch.optim.SGD(p, lr=0.5), 1e-5),
    "adagrad": (hr.Adagrad(lr=0.1), lambda p: torch.optim.Adagrad(p, lr=0.1), 1e-5),
    "adam": (hr.Adam(lr=0.01, correction="global"), lambda p: torch.optim.SparseAdam(list(p), lr=0.01), 1e-4),
}


@pytest.mark.parametrize(("ours", "theirs", "tolerance"), OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_losses_over_200_steps_equal_torch(ours: Any, theirs: Any, tolerance: float) -> None:
    table = hr.Table(dim=DIM, optimizer=ours, init=hr.Normal(std=0.3))
    first = torch.empty(IDS, DIM)
    LocalTables({"default": table}).tiers["default"].first_values(KEYS, first)
    trainer = Trainer(Net(), table, optimizer=lambda p: torch.optim.Adam(p, lr=0.01), report_every_s=0)
    reports = trainer.fit([batch for *_, batch in stream()])
    found = [report.loss for report in reports if isinstance(report, Progress)]
    expected = torch_losses(first, theirs)
    assert len(found) == STEPS
    assert np.mean(expected[-20:]) < np.mean(expected[:20]) - 0.02, "nothing was learned, so nothing is shown"
    assert np.abs(np.array(found) - np.array(expected)).max() <= tolerance
