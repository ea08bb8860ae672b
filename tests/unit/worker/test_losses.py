"""Losses by name against float64 definitions, with and without weights; and which task a loss is of."""

import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hotrow.errors import ConfigError, InputError
from hotrow.models.graphsage import GraphSAGE
from hotrow.models.youtubednn import YouTubeDNN
from hotrow.nn.inputs import InputShape
from hotrow.worker.losses import (
    Absolute,
    Huber,
    Loss,
    Poisson,
    Squared,
    binary_cross_entropy,
    named_loss,
    objective_of,
    predictions_of,
    takes_weights,
)

ORACLES: dict[str, tuple[Any, Callable[[float, float], float]]] = {
    "logistic": (named_loss("logistic"), lambda z, y: math.log1p(math.exp(-abs(z))) + max(z, 0) - y * z),
    "squared": (Squared(), lambda z, y: (z - y) ** 2),
    "absolute": (Absolute(), lambda z, y: abs(z - y)),
    "huber": (Huber(delta=0.5), lambda z, y: (z - y) ** 2 / 2 if abs(z - y) <= 0.5 else 0.5 * (abs(z - y) - 0.25)),
    "poisson": (Poisson(), lambda z, y: math.exp(z) - y * z),
}
every_loss = pytest.mark.parametrize("name", ORACLES)


def made(samples: int = 12, labels: int = 1, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    output = torch.from_numpy(rng.normal(size=(samples, labels))).requires_grad_()
    truth = torch.from_numpy(rng.integers(0, 2, (samples, labels)).astype(np.float64))
    return output, truth, torch.from_numpy(rng.integers(0, 4, samples).astype(np.float64))


@every_loss
@pytest.mark.parametrize("labels", [1, 3])
def test_a_loss_is_the_sum_of_weighted_losses_over_the_samples(name: str, labels: int) -> None:
    loss, of_one = ORACLES[name]
    output, truth, weights = made(labels=labels)
    pairs = zip(output.detach().flatten().tolist(), truth.flatten().tolist(), strict=True)
    plain = np.array([of_one(z, y) for z, y in pairs]).reshape(-1, labels)
    assert loss(output, truth).item() == pytest.approx(np.mean(plain), rel=1e-9)
    weighed = (plain * weights.numpy()[:, None]).sum() / (len(output) * labels)
    assert loss(output, truth, weights).item() == pytest.approx(weighed, rel=1e-9)


def gradient(loss: Loss, output: Tensor, *given: Tensor) -> Tensor:
    (found,) = torch.autograd.grad(loss(output, *given), output)
    return found


@every_loss
def test_a_weight_of_k_is_the_row_k_times_but_for_the_divisor(name: str) -> None:
    loss, _ = ORACLES[name]
    output, truth, weights = made()
    often = weights.long()
    repeated = gradient(loss, output, truth, weights) * len(output) / weights.sum()
    rows = output.detach().repeat_interleave(often, 0).requires_grad_()
    expected = torch.zeros_like(output)
    places = torch.arange(len(output)).repeat_interleave(often)
    expected.index_add_(0, places, gradient(loss, rows, truth.repeat_interleave(often, 0)))
    torch.testing.assert_close(repeated, expected)


@every_loss
def test_the_mean_of_parts_by_samples_is_the_loss_of_one_large_batch(name: str) -> None:
    loss, _ = ORACLES[name]
    output, truth, weights = made()
    cuts = [slice(0, 3), slice(3, 4), slice(4, 12)]
    parts = sum((cut.stop - cut.start) / 12 * loss(output[cut], truth[cut], weights[cut]) for cut in cuts)
    torch.testing.assert_close(parts, loss(output, truth, weights))


def test_predictions_are_the_output_and_of_counts_its_exponential() -> None:
    output = torch.tensor([-1.0, 0.0, 2.0])
    model = nn.Identity()
    assert predictions_of(model, Squared(), "regression")(output).tolist() == output.tolist()
    torch.testing.assert_close(predictions_of(model, Poisson(), "regression")(output), output.exp())
    torch.testing.assert_close(predictions_of(model, None, "classification")(output), output.sigmoid())
    assert predictions_of(model, lambda z, y: (z - y).abs().sum(), "regression")(output).tolist() == output.tolist()


def test_labels_that_a_loss_cannot_have_are_refused() -> None:
    output = torch.zeros(2)
    assert float(Poisson()(output, torch.tensor([[0.0], [3.0]]))) == pytest.approx(1.0)
    with pytest.raises(InputError, match="a label is -1: loss 'poisson' needs counts of 0 or more"):
        Poisson()(output, torch.tensor([[0.0], [-1.0]]))
    with pytest.raises(InputError, match=r"a label is 5: must be from 0 to 1; .*loss = 'squared' predicts the number"):
        binary_cross_entropy(output, torch.tensor([[0.0], [5.0]]))
    with pytest.raises(InputError, match=r"the model gives .2, 1. and the labels are .2, 2."):
        Squared()(output, torch.zeros(2, 2))


class Own(nn.Module):
    def loss(self, output: Tensor, labels: Tensor) -> Tensor:
        return (output[:, None] - labels).abs().mean()


class OwnRegression(Own):
    task = "regression"


@pytest.mark.parametrize(
    ("model", "loss", "task", "expected"),
    [
        (nn.Identity(), None, None, (None, "classification")),
        (nn.Identity(), None, "regression", (Squared(), "regression")),
        (nn.Identity(), "huber", None, (Huber(), "regression")),
        (nn.Identity(), {"name": "huber", "delta": 2}, "regression", (Huber(delta=2), "regression")),
        (Own(), None, None, (None, "classification")),
        (Own(), None, "regression", (None, "regression")),
        (Own(), "squared", None, (Squared(), "regression")),
        (OwnRegression(), None, None, (None, "regression")),
        (nn.Identity(), binary_cross_entropy, "regression", (binary_cross_entropy, "regression")),
    ],
)
def test_the_task_is_that_of_the_loss_and_the_loss_that_of_the_task(
    model: nn.Module, loss: Any, task: Any, expected: tuple[object, str]
) -> None:
    assert objective_of(model, loss, task) == expected


@pytest.mark.parametrize(
    ("loss", "task", "fault"),
    [
        ("mse", None, "loss='mse': there is no such loss: there are logistic, squared, absolute, huber, poisson"),
        ({"name": "huber", "delta": 0}, None, "loss="),
        (3, None, "loss=3: give the name of a loss"),
        ("squared", "classification", "task='classification': loss 'squared' is one of regression"),
        (None, "ranking", "task='ranking': must be 'classification' or 'regression'"),
    ],
)
def test_an_objective_that_cannot_be_is_refused(loss: Any, task: Any, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        objective_of(nn.Identity(), loss, task)


def test_a_model_whose_own_loss_is_of_classes_does_not_predict_numbers_by_it() -> None:
    shape = InputShape(0, {"item": 4}, {"seen": 4})
    for model in (YouTubeDNN(shape), GraphSAGE(shape, classes=2)):
        with pytest.raises(ConfigError, match=f"the loss of {type(model).__name__} is one of classification"):
            objective_of(model, None, "regression")


@pytest.mark.parametrize("objective", ["softmax", "binary"])
def test_the_losses_of_the_zoo_take_weights(objective: Any) -> None:
    shape = InputShape(0, {"item": 4}, {"seen": 4})
    youtube, graph = YouTubeDNN(shape, objective=objective), GraphSAGE(shape, classes=3)
    labels, weights = torch.tensor([[1.0], [0.0], [1.0]]), torch.tensor([2.0, 0.0, 1.0])
    output = torch.randn(3, 3) if objective == "softmax" else torch.randn(3)
    ones = torch.ones(3)
    for model, given, truth in ((youtube, output, labels), (graph, torch.randn(3, 3), labels)):
        assert takes_weights(model.loss)
        torch.testing.assert_close(model.loss(given, truth, ones), model.loss(given, truth))
        torch.testing.assert_close(model.loss(given, truth, 3 * weights), 3 * model.loss(given, truth, weights))
        assert float(model.loss(given, truth, 0 * weights)) == 0


def test_a_named_loss_travels_to_trainers_of_a_cluster() -> None:
    assert pickle.loads(pickle.dumps(Huber(delta=2))) == Huber(delta=2)


@pytest.mark.parametrize(
    ("label", "told"), [(1234567.0, "1,234,567"), (16777215.0, "16,777,215"), (1.1, "1.1"), (-0.25, "-0.25")]
)
def test_a_label_that_is_refused_is_shown_with_all_its_digits(label: float, told: str) -> None:
    labels = torch.tensor([[0.0], [label]], dtype=torch.float32)
    with pytest.raises(InputError, match=f"a label is {told}: must be from 0 to 1"):
        binary_cross_entropy(torch.zeros(2), labels)
    if label < 0:
        with pytest.raises(InputError, match=f"a label is {told}: loss 'poisson'"):
            Poisson()(torch.zeros(2), labels)
