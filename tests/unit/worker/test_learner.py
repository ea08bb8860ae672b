"""A learner turns a batch into gradients of the mean loss, and leaves nothing behind in the model."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import hotrow as hr
from hotrow.client import LocalTables
from hotrow.data.batch import Batch, FeatureBlock
from hotrow.errors import InputError
from hotrow.nn.inputs import Inputs
from hotrow.worker import Gradients, Learner, binary_cross_entropy

DIM = 2


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Parameter(torch.ones(1), requires_grad=False)
        self.layer = nn.Linear(DIM + 1, 1)
        self.unused = nn.Parameter(torch.ones(3))
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Inputs) -> Tensor:
        odds: Tensor = self.layer(torch.cat([x.flat, x.numbers], 1)).squeeze(1)
        return odds * self.frozen


def client() -> LocalTables:
    return LocalTables({"t": hr.Table(dim=DIM, init=hr.Normal(std=0.5))}, threads=1)


def batch_of(samples: int, labels: bool = True) -> Batch:
    rng = np.random.default_rng(samples)
    part = FeatureBlock("t", "one", ("a",), rng.integers(0, 5, samples))
    numbers = rng.normal(size=(samples, 1)).astype(np.float32)
    clicked = rng.integers(0, 2, (samples, 1)).astype(np.float32)
    return Batch((part,), numbers, clicked if labels else None)


def learnt(model: nn.Module, made: LocalTables, batch: Batch, **settings: object) -> Gradients:
    handle = made.lookup(batch, learn=True)
    return Learner(model, **settings).learn(batch, handle, made)  # type: ignore[arg-type]


def test_gradients_are_those_of_the_mean_loss() -> None:
    model, made, batch = Net(), client(), batch_of(6)
    found = learnt(model, made, batch)
    keys = batch.parts[0].keys
    rows = torch.empty(6, DIM)
    made.tiers["t"].find(keys, rows)
    rows.requires_grad_()
    odds = model.layer(torch.cat([rows, torch.from_numpy(batch.numbers)], 1))
    assert batch.labels is not None
    loss = nn.functional.binary_cross_entropy_with_logits(odds, torch.from_numpy(batch.labels))
    loss.backward()  # type: ignore[no-untyped-call]
    assert found.samples == 6
    torch.testing.assert_close(found.loss, loss.detach())
    torch.testing.assert_close(found.output, odds.detach().squeeze(1))
    assert found.dense[0] is None  # not used; the frozen one is not in the list at all
    torch.testing.assert_close(found.dense[1:], [model.layer.weight.grad, model.layer.bias.grad])
    torch.testing.assert_close(torch.from_numpy(found.row_gradients("t").gradients), rows.grad)
    assert found.dense_bytes == 4 * (DIM + 2)


def test_nothing_is_left_in_the_model_and_the_next_batch_does_not_change_the_last() -> None:
    model, made = Net(), client()
    first = learnt(model, made, batch_of(6))
    assert all(parameter.grad is None for parameter in model.parameters())
    kept = [None if each is None else each.clone() for each in first.dense]
    learnt(model, made, batch_of(7))
    assert all(a is b is None or torch.equal(a, b) for a, b in zip(kept, first.dense, strict=True))  # type: ignore[arg-type]


def test_a_batch_that_is_learnt_again_has_the_same_gradients() -> None:
    model, made, batch = Net(), client(), batch_of(6)
    handle, learner = made.lookup(batch, learn=True), Learner(model)
    first = learner.learn(batch, handle, made)
    kept = first.row_gradients("t").gradients.copy()
    again = learner.learn(batch, handle, made)  # after it was cut off
    assert (again.row_gradients("t").gradients == kept).all()
    torch.testing.assert_close(again.dense, first.dense)


def test_training_trains_and_predicting_does_not() -> None:
    model, made, batch = Net(), client(), batch_of(4)
    learner = Learner(model)
    learner.learn(batch, made.lookup(batch, learn=True), made)
    assert model.training
    rows = len(made.tiers["t"])
    output = learner.predict(batch, made.lookup(batch, learn=False))
    assert not model.training
    assert not output.requires_grad
    assert len(made.tiers["t"]) == rows


def test_a_loss_that_is_given_wins_and_the_models_own_comes_next() -> None:
    class Own(Net):
        def loss(self, output: Tensor, labels: Tensor) -> Tensor:
            return (output[:, None] - labels).square().mean() + 100 * self.frozen.sum()

    made, batch = client(), batch_of(4)
    assert float(learnt(Own(), made, batch).loss) > 100
    assert float(learnt(Own(), made, batch, loss=lambda output, labels: output.mean() * 0 + 7).loss) == 7
    assert 0 < float(learnt(Net(), made, batch).loss) < 10


@pytest.mark.parametrize("given", [False, True])
def test_a_learner_for_a_copy_uses_the_copys_own_loss(given: bool) -> None:
    class Own(Net):
        def loss(self, output: Tensor, labels: Tensor) -> Tensor:
            return output.mean() * 0 + self.frozen.sum()

    model, copied, made, batch = Own(), Own(), client(), batch_of(4)
    with torch.no_grad():
        copied.frozen.fill_(9)
    learner = Learner(model, loss=(lambda output, labels: output.mean() * 0 + 3) if given else None).like(copied)
    assert learner.model is copied
    assert float(learner.learn(batch, made.lookup(batch, learn=True), made).loss) == (3 if given else 9)


def test_a_learner_for_a_copy_computes_on_the_same_device() -> None:
    learner = Learner(Net(), device="meta").like(Net())
    assert learner.device == torch.device("meta")
    assert {each.device.type for each in learner.model.parameters()} == {"meta"}


def test_narrow_numbers_come_out_wide() -> None:
    found = learnt(Net(), client(), batch_of(4), autocast=True)
    assert found.output.dtype == torch.float32
    assert found.loss.dtype == torch.float32


def test_a_batch_without_labels_is_refused() -> None:
    with pytest.raises(InputError, match="labels are missing"):
        learnt(Net(), client(), batch_of(4, labels=False))


@pytest.mark.parametrize(("label", "fine"), [(0.0, True), (1.0, True), (0.5, True), (-0.01, False), (1.01, False)])
def test_labels_are_from_0_to_1(label: float, fine: bool) -> None:
    labels = torch.tensor([[label], [0.0]])
    if fine:
        assert binary_cross_entropy(torch.zeros(2), labels) > 0
    else:
        with pytest.raises(InputError, match=f"a label is {label:g}"):
            binary_cross_entropy(torch.zeros(2), labels)


def test_outputs_must_fit_labels() -> None:
    with pytest.raises(InputError, match=r"gives \(3, 1\) and the labels are \(3, 2\)"):
        binary_cross_entropy(torch.zeros(3), torch.zeros(3, 2))
    assert binary_cross_entropy(torch.zeros(3, 2), torch.zeros(3, 2)) == pytest.approx(np.log(2))
