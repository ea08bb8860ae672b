"""Pieces that no model shows alone: order of an MLP, batches of one sample, the auxiliary gradient."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hotrow.models.layers import MLP, BatchNorm, Dice, WithAuxiliary, masked_mean
from unit.models.made_inputs import array, backward


def test_an_mlp_is_linear_normalisation_activation_dropout_and_a_bare_last_layer() -> None:
    mlp = MLP(4, (3, 2), 1, activation="prelu", dropout=0.5, batch_norm=True)
    assert [type(layer) for layer in mlp] == 2 * [nn.Linear, BatchNorm, nn.PReLU, nn.Dropout] + [nn.Linear]
    assert mlp.width == 1
    plain = MLP(4, (3,), activation="tanh")
    assert [type(layer) for layer in plain] == [nn.Linear, nn.Tanh]
    assert plain.width == 3
    assert MLP(4, ()).width == 4


def test_a_layer_before_normalisation_has_no_bias_of_its_own() -> None:
    biases = [layer.bias for layer in MLP(4, (3,), 1, batch_norm=True) if isinstance(layer, nn.Linear)]
    assert biases[0] is None
    assert biases[1] is not None


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("relu", lambda x: x.clip(min=0)),
        ("tanh", np.tanh),
        ("sigmoid", lambda x: 1 / (1 + np.exp(-x))),
        ("prelu", lambda x: np.where(x > 0, x, 0.25 * x)),
    ],
)
def test_activations(name: str, formula: object) -> None:
    assert callable(formula)
    activation = MLP(3, (3,), activation=name)[1].double()  # type: ignore[arg-type]
    x = torch.linspace(-2, 2, 12, dtype=torch.float64).view(4, 3)
    np.testing.assert_allclose(array(activation(x)), formula(array(x)), rtol=1e-12)


@pytest.mark.parametrize("samples", [0, 1])
def test_a_batch_too_short_for_a_variance_is_normalised_as_in_eval_mode(samples: int) -> None:
    for norm in (BatchNorm(3), Dice(3)):
        norm(torch.randn(50, 3) * 4 + 2)  # so that the running figures say something
        kept = {name: value.clone() for name, value in norm.state_dict().items()}
        x = torch.randn(samples, 3)
        trained = norm.train()(x)
        np.testing.assert_allclose(array(trained), array(norm.eval()(x)))
        for name, value in norm.state_dict().items():
            assert torch.equal(value, kept[name]), name


def test_two_samples_are_normalised_by_themselves() -> None:
    norm = BatchNorm(1)
    np.testing.assert_allclose(array(norm(torch.tensor([[1.0], [3.0]]))), [[-1], [1]], atol=1e-5)


def test_an_auxiliary_loss_adds_its_gradient_once_whatever_the_loss() -> None:
    weight = torch.tensor([2.0, 3.0], requires_grad=True)
    output = WithAuxiliary.apply(weight * 5, (weight**2).sum())  # type: ignore[no-untyped-call]
    assert isinstance(output, Tensor)
    np.testing.assert_array_equal(array(output), [10, 15])
    backward(output * torch.tensor([7.0, 1.0]))
    assert weight.grad is not None
    np.testing.assert_allclose(array(weight.grad), [35 + 4, 5 + 6])


def test_a_mean_of_nothing_is_zero() -> None:
    rows = torch.tensor([[[1.0, 2], [3, 4]], [[9, 9], [9, 9]]])
    mask = torch.tensor([[True, True], [False, False]])
    np.testing.assert_array_equal(array(masked_mean(rows, mask)), [[2, 3], [0, 0]])
