"""Part `models` of `hotrow bench gpu`: networks are those of `hotrow.models`, wrong updates are found, AUC is exact."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("triton", reason="Triton is not installed: pip install 'hotrow[gpu]'")

import hotrow as hr
from hotrow.bench.gpu import models
from hotrow.bench.gpu.auc import TeacherStream, area_under_curve
from hotrow.bench.gpu.networks import NETWORKS, NUMBERS, DeepFmNetwork, matrix_flops
from hotrow.bench.gpu.plan import GpuPlan
from hotrow.bench.gpu.training import FoldedTable, SparseTable, Training, TrainingBatch, seeded
from hotrow.models import build
from hotrow.store.hbm import HbmTier

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
PLAN = GpuPlan().quick()
SAMPLES, FIELDS, DIM = 3, 4, 8
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of numpy, for idle lanes in the interpreter


@pytest.mark.parametrize("name", NETWORKS)
def test_the_network_is_that_of_hotrow_models(name: str) -> None:
    shape = hr.InputShape(NUMBERS, {str(field): DIM for field in range(FIELDS)})
    wanted, network = build(name, shape), NETWORKS[name](FIELDS, DIM, kernels=False)
    linear = [each for each in wanted.modules() if isinstance(each, nn.Linear)]
    with torch.no_grad():
        if isinstance(network, DeepFmNetwork):
            first, *rest = linear
            network.of_rows.weight.copy_(first.weight[:, : FIELDS * DIM])
            network.of_rows.bias.copy_(first.bias)
            network.of_numbers.weight.copy_(first.weight[:, FIELDS * DIM :])
            wanted.first_order.weights.copy_(network.weights.weight[0])  # type: ignore[union-attr, operator]
            wanted.first_order.bias.copy_(network.weights.bias)  # type: ignore[union-attr, operator]
            own = [each for each in network.upper.modules() if isinstance(each, nn.Linear)]
        else:
            rest, own = linear, [each for each in network.modules() if isinstance(each, nn.Linear)]
        for ours, theirs in zip(own, rest, strict=True):
            ours.weight.zero_()[:, : theirs.weight.shape[1]] = theirs.weight
            ours.bias.copy_(theirs.bias)
    rows, numbers = torch.randn(SAMPLES, FIELDS, DIM), torch.randn(SAMPLES, NUMBERS)
    inputs = hr.Inputs(numbers, {tuple(shape.fields): rows})
    torch.testing.assert_close(network(rows, numbers), wanted(inputs), rtol=1e-5, atol=1e-5)


def test_flops_are_those_of_three_products_a_layer() -> None:
    assert matrix_flops(nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 1))) == 6 * (15 + 5)


def test_both_tables_of_plain_torch_train_alike() -> None:
    ids = torch.tensor([0, 5, 5, 2, 0, 5])
    losses = []
    for table in (SparseTable(torch.full((6, DIM), 0.3)), FoldedTable(torch.full((6, DIM), 0.3))):
        network = seeded(partial(DeepFmNetwork, 2, DIM, kernels=False), torch.device("cpu"), 1)
        training = Training(network, table, torch.optim.SGD(network.parameters(), lr=0.1))
        batch = TrainingBatch(ids, torch.ones(3, NUMBERS), torch.tensor([1.0, 0.0, 1.0]))
        losses.append([float(training.step(batch)) for _ in range(4)])
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_that_do_not_arrive_are_found_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    apply = HbmTier.apply

    def without(tier: HbmTier, plan: Any, gradients: Tensor, *rest: Any, **settings: Any) -> Any:
        kept = torch.arange(len(gradients), device=gradients.device) % 8 > 0
        return apply(tier, plan, gradients * kept[:, None], *rest, **settings)

    monkeypatch.setattr(HbmTier, "apply", without)
    with pytest.raises(AssertionError, match=r"changes of rows differ|not close"):
        models.compare_training(name, DEVICE, PLAN)


def test_auc_counts_equal_scores_as_half() -> None:
    random = torch.Generator().manual_seed(4)
    scores = torch.randint(5, (200,), generator=random) / 8
    labels = torch.randint(2, (200,), generator=random).float()
    pairs = scores[labels == 1][:, None] - scores[labels == 0][None, :]
    wanted = float((pairs > 0).double().mean() + 0.5 * (pairs == 0).double().mean())
    assert area_under_curve(scores, labels) == pytest.approx(wanted, abs=1e-12)


def test_the_labels_of_a_stream_follow_its_teacher() -> None:
    stream = TeacherStream(torch.device("cpu"), GpuPlan(samples=20_000, fields=8, auc_ids=500), seed=3)
    batch = stream.batch()
    odds = stream._weights[batch.ids].view(20_000, 8).sum(1) + batch.numbers @ stream._of_numbers
    assert 0.7 < area_under_curve(odds, batch.labels) < 0.95  # without the products
