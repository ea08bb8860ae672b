"""Models that multiply fields with each other, beside their formulas as loops in float64."""

from itertools import combinations

import numpy as np
import pytest
import torch

from hotrow.models.dcn import DCN
from hotrow.models.dcnv2 import DCNv2
from hotrow.models.deepfm import DeepFM
from hotrow.models.dlrm import DLRM
from hotrow.models.dnn import DNN
from hotrow.models.ffnn import FFNN
from hotrow.models.fm import FM
from hotrow.models.interactions import weights_and_pairs
from hotrow.models.layers import FirstOrder
from hotrow.models.lr import LR
from hotrow.models.wide_deep import WideDeep
from hotrow.models.xdeepfm import XDeepFM
from hotrow.nn.inputs import Inputs, InputShape
from unit.models.made_inputs import FIELDS, Vector, array, backward, made, network, side, stirred

MIXED = InputShape(numbers=2, fields={"a": 3, "b": 3, "c": 4})


def first_order(part: FirstOrder, x: Inputs, sample: int) -> float:
    odds = part.bias.item()
    for weight, number in zip(array(part.weights), array(x.numbers[sample]), strict=True):
        odds += weight * number
    return odds + sum(x[name][sample, 0].item() for name in x.fields)


def pairs(x: Inputs, sample: int) -> float:
    vectors = [array(x[name][sample, 1:]) for name in x.fields]
    return sum(float(left @ right) for left, right in combinations(vectors, 2))


@pytest.mark.parametrize("shape", [FIELDS, MIXED])
def test_lr_adds_weights(shape: InputShape) -> None:
    model = stirred(LR(shape))
    x = made(shape)
    expected = [first_order(model.first_order, x, sample) for sample in range(len(x))]
    np.testing.assert_allclose(array(model(x)), expected, rtol=1e-12)


def test_fm_adds_the_products_of_all_pairs() -> None:
    model = stirred(FM(FIELDS))
    x = made(FIELDS)
    expected = [first_order(model.first_order, x, sample) + pairs(x, sample) for sample in range(len(x))]
    np.testing.assert_allclose(array(model(x)), expected, rtol=1e-12)


def test_fm_keeps_float32_under_autocast_as_the_kernel_does() -> None:
    rows = torch.randn(100, 26, 17, generator=torch.Generator().manual_seed(1)) * 0.05
    found = rows.clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        pairs_of_rows = weights_and_pairs(found)
    expected = rows.double().requires_grad_()
    torch.testing.assert_close(pairs_of_rows.double(), weights_and_pairs(expected), atol=1e-5, rtol=1e-5)
    pairs_of_rows.sum().backward()  # type: ignore[no-untyped-call]
    weights_and_pairs(expected).sum().backward()  # type: ignore[no-untyped-call]
    assert found.grad is not None
    assert expected.grad is not None
    torch.testing.assert_close(found.grad.double(), expected.grad, atol=1e-5, rtol=1e-5)


def test_fm_gradient_of_a_row_is_one_for_the_weight_and_the_others_sum_for_the_vector() -> None:
    rows = made(FIELDS).rows.detach().requires_grad_()
    backward(weights_and_pairs(rows))
    assert rows.grad is not None
    for sample, of_sample in enumerate(array(rows.grad)):
        for field, gradient in enumerate(of_sample):
            others = [array(rows[sample, other, 1:]) for other in range(3) if other != field]
            np.testing.assert_allclose(gradient, [1.0, *np.sum(others, axis=0)], rtol=1e-12)


@pytest.mark.parametrize("shape", [FIELDS, MIXED])
def test_wide_deep_adds_lr_and_a_network(shape: InputShape) -> None:
    model = stirred(WideDeep(shape, hidden=(4, 3)))
    x = made(shape)
    expected = [
        first_order(model.wide, x, sample) + network(model.deep, side(x, sample))[0] for sample in range(len(x))
    ]
    np.testing.assert_allclose(array(model(x)), expected, rtol=1e-12)


def test_deepfm_adds_fm_and_a_network() -> None:
    model = stirred(DeepFM(FIELDS, hidden=(4, 3)))
    x = made(FIELDS)
    expected = [
        first_order(model.first_order, x, sample) + pairs(x, sample) + network(model.deep, side(x, sample))[0]
        for sample in range(len(x))
    ]
    np.testing.assert_allclose(array(model(x)), expected, rtol=1e-12)


@pytest.mark.parametrize("kind", [DNN, FFNN])
def test_networks_see_all_rows_and_numbers(kind: type[DNN | FFNN]) -> None:
    model = stirred(kind(MIXED, hidden=(6, 4)))
    x = made(MIXED)
    expected = [network(model.deep, side(x, sample))[0] for sample in range(len(x))]
    np.testing.assert_allclose(array(model(x)), expected, rtol=1e-12)


def test_ffnn_is_as_wide_as_persia_says() -> None:
    widths = [layer.out_features for layer in FFNN(FIELDS).deep if isinstance(layer, torch.nn.Linear)]
    assert widths == [4096, 2048, 1024, 512, 256, 1]


def test_dcn_crosses_with_a_vector() -> None:
    model = stirred(DCN(MIXED, cross_layers=3, hidden=(4,), batch_norm=False))
    x = made(MIXED)
    expected = []
    for sample in range(len(x)):
        first = side(x, sample)
        value = first
        for layer, bias in zip(model.cross.weights, array(model.cross.biases), strict=True):
            (weights,) = array(layer.weight)
            value = np.array([first[i] * sum(weights * value) + bias[i] + value[i] for i in range(len(first))])
        last = np.concatenate([value, network(model.deep, first)])
        expected.append(float(array(model.top.weight)[0] @ last) + model.top.bias.item())
    np.testing.assert_allclose(array(model(x)), expected, rtol=1e-11)


@pytest.mark.parametrize("structure", ["stacked", "parallel"])
@pytest.mark.parametrize("rank", [None, 2])
def test_dcnv2_crosses_with_a_matrix(structure: str, rank: int | None) -> None:
    model = stirred(DCNv2(MIXED, cross_layers=2, rank=rank, structure=structure, hidden=(4,)))  # type: ignore[arg-type]
    x = made(MIXED)
    expected = []
    for sample in range(len(x)):
        first = side(x, sample)
        value = first
        for layer in model.cross.layers:
            parts = list(layer.children()) or [layer]
            matrix, bias = array(parts[-1].weight), array(parts[-1].bias)
            if rank is not None:
                matrix = matrix @ array(parts[0].weight)
            value = np.array([first[i] * (matrix[i] @ value + bias[i]) + value[i] for i in range(len(first))])
        deep = network(model.deep, value if structure == "stacked" else first)
        last = deep if structure == "stacked" else np.concatenate([value, deep])
        expected.append(float(array(model.top.weight)[0] @ last) + model.top.bias.item())
    np.testing.assert_allclose(array(model(x)), expected, rtol=1e-11)


def interactions(model: XDeepFM, vectors: Vector) -> Vector:
    """CIN as the paper writes it: unit h is the sum over i, j of W[h, i, j] * (vector i of the layer * field j)."""
    layer_values, sums = vectors, []
    for layer in model.cin.layers:
        weights = array(layer.weight).reshape(-1, len(layer_values), len(vectors))
        values = np.zeros((len(weights), vectors.shape[1]))
        for h in range(len(weights)):
            for i in range(len(layer_values)):
                for j in range(len(vectors)):
                    values[h] += weights[h, i, j] * layer_values[i] * vectors[j]
        sums.append(values.sum(1))
        layer_values = values
    return np.concatenate(sums)


def test_xdeepfm_adds_weights_interactions_and_a_network() -> None:
    model = stirred(XDeepFM(FIELDS, cin=(4, 2), hidden=(4,)))
    x = made(FIELDS)
    expected = []
    for sample in range(len(x)):
        compressed = interactions(model, array(x.rows[sample, :, 1:]))
        odds = first_order(model.first_order, x, sample) + network(model.deep, side(x, sample))[0]
        expected.append(odds + float(array(model.of_cin.weight)[0] @ compressed))
    np.testing.assert_allclose(array(model(x)), expected, rtol=1e-11)


@pytest.mark.parametrize("numbers", [0, 3])
def test_dlrm_multiplies_every_two_vectors_once(numbers: int) -> None:
    shape = InputShape(numbers, FIELDS.fields)
    model = stirred(DLRM(shape, bottom=(4,), top=(6,)))
    x = made(shape)
    expected = []
    for sample in range(len(x)):
        vectors = list(array(x.rows[sample]))
        dense: list[Vector] = []
        if model.bottom is not None:
            dense = [network(model.bottom, array(x.numbers[sample]))]
            vectors = [*dense, *vectors]
        products = [float(vectors[i] @ vectors[j]) for i in range(len(vectors)) for j in range(i)]
        expected.append(network(model.top, np.concatenate([*dense, products]))[0])
    np.testing.assert_allclose(array(model(x)), expected, rtol=1e-11)


@pytest.mark.parametrize("kind", [LR, FM])
def test_the_order_of_fields_changes_nothing_where_they_are_alike(kind: type[LR | FM]) -> None:
    model = stirred(kind(FIELDS))
    x = made(FIELDS)
    turned = Inputs(x.numbers, {("shop", "user", "item"): x.rows[:, [2, 0, 1]].contiguous()}, {})
    np.testing.assert_allclose(array(model(turned)), array(model(x)), rtol=1e-12)
