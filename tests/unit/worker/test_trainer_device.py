"""A trainer's network may be on a device: what it computes with goes there, and what it leaves is in memory again."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import hotrow as hr
from hotrow.client import LocalTables
from hotrow.data.batch import Batch, FeatureBlock
from hotrow.nn.inputs import Inputs, SequenceRows
from hotrow.worker import Gradients, Learner
from hotrow.worker.setup import check_device


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layer = nn.Linear(2 + 2 + 1, 1)

    def forward(self, x: Inputs) -> Tensor:
        history = x.sequence("h")
        mean = (history.rows * history.mask[:, :, None]).mean(1)
        odds: Tensor = self.layer(torch.cat([x.flat, mean, x.numbers], 1)).squeeze(1)
        return odds


def batch() -> Batch:
    chance = np.random.default_rng(0)
    bounds = np.array([0, 2, 2, 5, 6], np.int64)
    parts = (
        FeatureBlock("t", "one", ("a",), chance.integers(0, 5, 4)),
        FeatureBlock("t", "sequence", ("h",), chance.integers(0, 5, 6), bounds),
    )
    numbers = chance.normal(size=(4, 1)).astype(np.float32)
    return Batch(parts, numbers, chance.integers(0, 2, (4, 1)).astype(np.float32))


def learnt(device: str) -> tuple[Gradients, Tensor]:
    client = LocalTables({"t": hr.Table(dim=2, init=hr.Normal(std=0.5))}, threads=1)
    learner, given = Learner(Net(), device=device), batch()
    found = learner.learn(given, client.lookup(given, learn=True), client)
    predicted = learner.predict(given, client.lookup(given, learn=False))
    return found, predicted


def test_everything_that_a_model_gets_goes_to_the_device() -> None:
    sequence = SequenceRows(torch.zeros(4, 3, 2), torch.ones(4, 3, dtype=torch.bool))
    inputs = Inputs(torch.zeros(4, 1), {("a",): torch.zeros(4, 1, 2)}, {"h": sequence})
    there = inputs.to(torch.device("meta"))
    assert {there.numbers.device.type, there.rows.device.type, there.flat.device.type} == {"meta"}
    assert {there.sequence("h").rows.device.type, there.sequence("h").mask.device.type} == {"meta"}
    assert there.fields == inputs.fields
    assert inputs.to(torch.device("cpu")) is inputs


def test_a_device_that_is_not_there_is_named() -> None:
    check_device("cpu")
    if torch.cuda.is_available():
        check_device("cuda")
        return
    with pytest.raises(
        hr.ConfigError, match=r"engine.trainer.gpus: .* no device for 'cuda' on this host: .*leave gpus"
    ):
        check_device("cuda")


@pytest.mark.gpu
def test_gradients_come_back_from_a_device_and_are_those_of_the_processor() -> None:
    here, predicted_here = learnt("cpu")
    there, predicted_there = learnt("cuda")
    assert {there.loss.device.type, there.output.device.type, predicted_there.device.type} == {"cpu"}
    torch.testing.assert_close(there.output, here.output)
    torch.testing.assert_close(predicted_there, predicted_here)
    np.testing.assert_allclose(
        there.row_gradients("t").gradients, here.row_gradients("t").gradients, rtol=1e-5, atol=1e-7
    )
    for one, other in zip(there.dense, here.dense, strict=True):
        assert one is not None
        assert other is not None
        torch.testing.assert_close(one.cpu(), other)
