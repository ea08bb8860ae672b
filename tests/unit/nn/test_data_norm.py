"""Data normalisation is its formula, in both modes; its gradients are those of the formula; no mean flips its sign."""

import inspect

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hotrow.errors import ConfigError, InputError
from hotrow.models import MODELS, build
from hotrow.models.layers import MLP
from hotrow.nn import DataNorm
from unit.models.made_inputs import FIELDS, HISTORY, array, made

UNITS = 3
F64 = NDArray[np.float64]


def norm(units: int = UNITS, momentum: float = 0.1, least: float = 0.5) -> DataNorm:
    return DataNorm(units, momentum=momentum, least=least).double()


def paper(units: int = UNITS) -> DataNorm:
    """With its defaults."""
    return DataNorm(units).double()


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None]


def positive(samples: int, seed: int = 0) -> Tensor:
    """Numbers whose mean is far from 0."""
    return torch.from_numpy(np.random.default_rng(seed).uniform(1, 3, (samples, UNITS)))


def formula(x: F64, alpha: F64, beta: F64, mean: F64) -> F64:
    return alpha * x / mean - beta


def test_output_is_the_formula_over_the_batch() -> None:
    layer, x = norm(), positive(20)
    with torch.no_grad():
        layer.alpha.copy_(torch.tensor([2.0, -1.0, 0.5]))
        layer.beta.copy_(torch.tensor([0.0, 3.0, -1.0]))
    expected = formula(array(x), np.array([2.0, -1.0, 0.5]), np.array([0.0, 3.0, -1.0]), array(x).mean(0))
    np.testing.assert_allclose(array(layer(x)), expected, rtol=1e-13)


@pytest.mark.parametrize("shift", [0.0, 0.01, -0.2, 3.0])
def test_by_default_it_is_the_papers_equation_on_plain_batches(shift: float) -> None:
    x = torch.from_numpy(np.random.default_rng(4).standard_normal((64, UNITS)) + shift)
    layer = paper()
    np.testing.assert_allclose(array(layer(x)), array(x) / array(x).mean(0) - 1, rtol=1e-12)
    assert int(layer.guarded) == 0
    np.testing.assert_allclose(array(layer.eval()(x)), array(x) / array(x).mean(0) - 1, rtol=1e-12)


@pytest.mark.parametrize(
    ("mean", "divisor"), [(2e-5, 2e-5), (1e-5, 1e-5), (9e-6, 1e-5), (-9e-6, -1e-5), (-2e-5, -2e-5), (0.0, 1e-5)]
)
def test_an_absolute_bound_keeps_a_mean_away_from_zero_on_its_own_side(mean: float, divisor: float) -> None:
    x = column(1.0 + mean, -1.0 + mean)
    layer = paper(1)
    np.testing.assert_allclose(array(layer(x))[:, 0], array(x)[:, 0] / divisor - 1, rtol=1e-9)
    wider = DataNorm(1, bound=0.5).double()
    np.testing.assert_allclose(array(wider(x))[:, 0], array(x)[:, 0] / np.copysign(0.5, divisor) - 1, rtol=1e-12)


def test_it_starts_as_the_distance_from_the_mean_in_means() -> None:
    x = positive(20)
    np.testing.assert_allclose(array(norm()(x)), array((x - x.mean(0)) / x.mean(0)), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("training", [True, False])
def test_gradients_are_those_of_the_formula(training: bool) -> None:
    """By finite differences in float64: of x, alpha and beta, on means of both signs that no guard touches."""
    layer = norm()
    layer(positive(9, seed=1))
    layer.train(training)
    x = (positive(7) * torch.tensor([1.0, -2.0, 0.01], dtype=torch.float64)).requires_grad_()

    def output(x: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
        given: Tensor = torch.func.functional_call(layer, {"alpha": alpha, "beta": beta}, (x,))
        return given

    alpha = torch.tensor([0.7, 1.0, -2.0], dtype=torch.float64, requires_grad=True)
    beta = torch.tensor([0.1, -1.0, 3.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(output, (x, alpha, beta))
    assert not layer.guarded


def test_no_gradient_goes_through_a_guarded_mean() -> None:
    layer = norm(1)
    x = column(-1.0, 1.2).requires_grad_()  # mean 0.1, mean of |x| 1.1
    layer(x)[0].backward()
    assert x.grad is not None
    np.testing.assert_allclose(array(x.grad), [[1 / 0.55], [0.0]], rtol=1e-13)


@pytest.mark.parametrize(
    ("values", "divisor"),
    [
        ((3.0, 1.0), 2.0),
        ((-3.0, -1.0), -2.0),
        ((3.0, -1.0), 1.0),  # mean 1, size 2: just at the bound
        ((3.0, -1.01), 0.5 * 2.005),  # just below it
        ((-3.0, 1.0), -1.0),
        ((-3.0, 1.01), -0.5 * 2.005),
        ((1.0, -1.0), 0.5),  # 0 has no side: the positive one
        ((1e-3, -1.1e-3), -0.5 * 1.05e-3),  # the bound goes with the size of x
    ],
)
def test_a_mean_near_zero_is_moved_away_on_its_own_side(values: tuple[float, float], divisor: float) -> None:
    layer = norm(1)
    np.testing.assert_allclose(array(layer(column(*values)))[:, 0], np.array(values) / divisor - 1, rtol=1e-12)
    assert int(layer.guarded) == (abs(sum(values) / 2) < abs(divisor) * (1 - 1e-12))


def test_guarded_means_are_counted_unit_by_unit_in_training_alone() -> None:
    layer, x = norm(), positive(4)
    x[:, 1] -= x[:, 1].mean()
    layer(x)
    layer(x)
    layer.eval()(x)
    assert int(layer.guarded) == 2
    assert "guarded" not in layer.state_dict()


def test_an_input_of_zeros_gives_finite_numbers() -> None:
    layer = norm()
    x = torch.zeros(4, UNITS, dtype=torch.float64, requires_grad=True)
    output = layer(x)
    np.testing.assert_array_equal(array(output), -1)
    output.sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


def test_the_size_of_x_does_not_matter() -> None:
    x = torch.from_numpy(np.random.default_rng(3).standard_normal((50, UNITS)))
    np.testing.assert_allclose(array(norm()(x)), array(norm()(x * 1e3)), rtol=1e-10)


def test_running_means_are_plain_ones_at_first_and_move_by_momentum_later() -> None:
    layer = norm(momentum=0.25)
    batches = [positive(5, seed) * (-1) ** seed for seed in range(7)]
    mean, size = np.zeros(UNITS), np.zeros(UNITS)
    for count, batch in enumerate(batches, start=1):
        layer(batch)
        share = max(0.25, 1 / count)
        mean += share * (array(batch).mean(0) - mean)
        size += share * (np.abs(array(batch)).mean(0) - size)
        if count <= 4:
            np.testing.assert_allclose(mean, np.mean([array(b).mean(0) for b in batches[:count]], axis=0), rtol=1e-12)
        np.testing.assert_allclose(array(layer.running_mean), mean, rtol=1e-12)
        np.testing.assert_allclose(array(layer.running_size), size, rtol=1e-12)


@pytest.mark.parametrize("samples", [0, 1, 6])
def test_eval_mode_divides_by_the_running_mean_and_changes_nothing(samples: int) -> None:
    layer, x = norm(), positive(samples, seed=5)
    seen = positive(30, seed=6)
    layer(seen)
    kept = {name: value.clone() for name, value in layer.state_dict().items()}
    output = layer.eval()(x)
    np.testing.assert_allclose(array(output), array(x) / array(seen).mean(0) - 1, rtol=1e-12)
    assert all(torch.equal(value, kept[name]) for name, value in layer.state_dict().items())


def test_a_running_mean_near_zero_is_guarded_too() -> None:
    layer = norm(1)
    layer(column(1.0, 2.0))
    layer(column(-1.0, -2.01))
    np.testing.assert_allclose(array(layer.eval()(column(1.0)))[0, 0], 1 / (-0.5 * 1.5025) - 1, rtol=1e-12)


def test_before_any_batch_eval_mode_divides_by_one() -> None:
    np.testing.assert_allclose(array(norm(1).eval()(column(3.0))), [[2.0]])


@pytest.mark.parametrize("samples", [0, 1])
def test_a_batch_that_is_its_own_mean_is_normalised_as_in_eval_mode(samples: int) -> None:
    layer, x = norm(), positive(samples, seed=7)
    layer(positive(30))
    kept = {name: value.clone() for name, value in layer.state_dict().items()}
    trained = layer.train()(x)
    np.testing.assert_array_equal(array(trained), array(layer.eval()(x)))
    assert all(torch.equal(value, kept[name]) for name, value in layer.state_dict().items())


def test_state_goes_on_in_another_layer() -> None:
    layer, other = norm(), norm()
    layer(positive(8))
    other.load_state_dict(layer.state_dict())
    for each in (layer, other):
        each(positive(8, seed=1))
    assert torch.equal(layer.running_mean, other.running_mean)


def test_means_of_half_precision_inputs_are_taken_in_full() -> None:
    layer = DataNorm(1)
    x = torch.full((4096, 1), 1.5, dtype=torch.bfloat16)
    np.testing.assert_allclose(array(layer(x)), 0, atol=1e-6)
    assert layer.running_mean.dtype == torch.float32


@pytest.mark.parametrize("shape", [(4,), (4, UNITS + 1), (2, 4, UNITS)])
def test_an_input_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"x is \(.*must be \[samples, 3\]"):
        norm()(torch.zeros(shape, dtype=torch.float64))


@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        ({"units": 0}, "units=0"),
        ({"units": 2.5}, "units=2.5: must be a whole number"),
        ({"bound": 0.0}, "bound=0.0"),
        ({"bound": float("inf")}, "bound=inf"),
        ({"momentum": 0.0}, "momentum=0.0"),
        ({"momentum": 1.1}, "momentum=1.1"),
        ({"least": -0.1}, "least=-0.1"),
        ({"least": 1.1}, "least=1.1"),
        ({"least": float("nan")}, "least=nan"),
    ],
)
def test_settings_that_cannot_be_are_refused(chosen: dict[str, float], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        DataNorm(**{"units": 3, **chosen})  # type: ignore[arg-type]


def test_settings_at_their_bounds_are_welcome() -> None:
    DataNorm(1, momentum=1.0, least=0.0)
    DataNorm(1, momentum=1e-6, least=1.0, bound=1e-30)


def test_an_mlp_puts_it_between_layer_and_activation() -> None:
    mlp = MLP(4, (3, 2), 1, dropout=0.5, data_norm=True)
    assert [type(layer) for layer in mlp] == 2 * [nn.Linear, DataNorm, nn.ReLU, nn.Dropout] + [nn.Linear]
    assert all(layer.bias is not None for layer in mlp if isinstance(layer, nn.Linear))  # dividing takes no bias away


def test_a_model_takes_its_settings() -> None:
    model = build("deepfm", FIELDS, {"hidden": [8], "data_norm": {"least": 0.5}})
    assert [each.least for each in model.modules() if isinstance(each, DataNorm)] == [0.5]
    plain = build("deepfm", FIELDS, {"hidden": [8], "data_norm": True})
    assert [(each.least, each.bound) for each in plain.modules() if isinstance(each, DataNorm)] == [(0.0, 1e-5)]
    with pytest.raises(ConfigError, match=r"DataNormSettings.*lest"):
        build("deepfm", FIELDS, {"hidden": [8], "data_norm": {"lest": 0.5}})
    with pytest.raises(ConfigError, match=r"deepfm.data_norm=3: must be true, false, or settings"):
        build("deepfm", FIELDS, {"hidden": [8], "data_norm": 3})


def test_one_normalisation_is_enough() -> None:
    with pytest.raises(ConfigError, match="set batch_norm to false"):
        MLP(4, (3,), batch_norm=True, data_norm=True)


def loss_after_training(least: float | None) -> float:
    """Of a network on a made-up task, over samples that it has not seen. Knowing nothing gives log(2) = 0.693."""
    torch.manual_seed(0)
    x = torch.randn(12_000, 16)
    teacher = MLP(16, (32,), 1, activation="tanh")
    labels = (torch.rand(len(x)) < torch.sigmoid(20 * teacher(x)[:, 0].detach())).float()
    network = MLP(16, (32, 16), 1, data_norm=least is not None)
    for layer in network:
        if isinstance(layer, DataNorm) and least is not None:
            layer.least = least
    optimizer = torch.optim.Adagrad(network.parameters(), lr=0.05)
    for start in range(0, 10_000, 100):
        batch = slice(start, start + 100)
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(network(x[batch])[:, 0], labels[batch])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    network.eval()
    with torch.no_grad():
        odds = network(x[10_000:])[:, 0]
    return nn.functional.binary_cross_entropy_with_logits(odds, labels[10_000:]).item()


def test_a_network_learns_through_it_though_the_means_of_its_layers_lie_around_zero() -> None:
    plain, guarded, bare = (loss_after_training(least) for least in (None, 0.5, 0.01))
    assert guarded < plain + 0.05 < 0.35
    assert bare > 0.45


WITH_ONE_MLP = ["wide_deep", "deepfm", "dnn", "ffnn", "dcn", "dcnv2", "xdeepfm", "din", "dien"]


def test_models_that_take_batch_norm_take_data_norm() -> None:
    taking = [name for name, model in MODELS.items() if "data_norm" in inspect.signature(model).parameters]
    assert taking == WITH_ONE_MLP
    assert taking == [name for name, model in MODELS.items() if "batch_norm" in inspect.signature(model).parameters]


@pytest.mark.parametrize("name", WITH_ONE_MLP)
def test_a_model_with_data_norm_trains_through_it(name: str) -> None:
    more = {"cin": [4]} if name == "xdeepfm" else {"target": "item"} if name in ("din", "dien") else {}
    shape = HISTORY if name in ("din", "dien") else FIELDS
    model = build(name, shape, {"hidden": [8, 4], "batch_norm": False, "data_norm": True, **more})
    assert sum(isinstance(module, DataNorm) for module in model.modules()) == 2
    model.train()(made(shape, dtype=torch.float32)).sum().backward()
    for module in model.modules():
        if isinstance(module, DataNorm):
            assert int(module.batches) == 1
            assert module.alpha.grad is not None
            assert module.beta.grad is not None
