"""What every model of the zoo keeps: shapes, gradients to everything, the same answer twice, few and no numbers."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from hotrow.errors import ConfigError
from hotrow.models import MODELS, build
from hotrow.nn.inputs import InputShape
from unit.models.made_inputs import FIELDS, GRAPH, HISTORY, array, backward, leaves, made, stirred

SMALL: dict[str, dict[str, Any]] = {  # settings that make them quick
    "lr": {},
    "fm": {},
    "wide_deep": {"hidden": [8, 4]},
    "deepfm": {"hidden": [8, 4]},
    "dnn": {"hidden": [8, 4]},
    "ffnn": {"hidden": [8, 4]},
    "dcn": {"cross_layers": 2, "hidden": [8]},
    "dcnv2": {"cross_layers": 2, "hidden": [8], "rank": 3},
    "xdeepfm": {"cin": [4, 3], "hidden": [8]},
    "dlrm": {"bottom": [8], "top": [8]},
    "din": {"target": "item", "hidden": [8]},
    "dien": {"target": "item", "hidden": [8]},
    "youtubednn": {"target": "item", "hidden": [8]},
    "shared_bottom": {"labels": 3, "bottom": [8], "tower": [4]},
    "mmoe": {"labels": 3, "experts": 4, "expert": [8], "tower": [4]},
    "graphsage": {"classes": 4, "hidden": 8},
}
SHAPES = dict.fromkeys(["din", "dien", "youtubednn"], HISTORY) | {"graphsage": GRAPH}
OUTPUTS = {"shared_bottom": (6, 3), "mmoe": (6, 3), "graphsage": (6, 4)}
NEEDS_FIELDS = {"fm", "deepfm", "xdeepfm", "dlrm", "din", "dien", "youtubednn", "graphsage"}


def small(name: str, shape: InputShape | None = None) -> nn.Module:
    torch.manual_seed(0)
    return build(name, shape or SHAPES.get(name, FIELDS), SMALL[name])


def without_numbers(name: str) -> InputShape:
    shape = SHAPES.get(name, FIELDS)
    return InputShape(0, shape.fields, shape.sequences)


def test_every_model_is_tried() -> None:
    assert SMALL.keys() == MODELS.keys()


@pytest.mark.parametrize("name", MODELS)
def test_a_model_builds_from_its_defaults(name: str) -> None:
    needed = {key: value for key, value in SMALL[name].items() if key in ("target", "classes", "labels")}
    shape = SHAPES.get(name, FIELDS)
    assert build(name, shape, needed).eval()(made(shape, dtype=torch.float32)).shape == OUTPUTS.get(name, (6,))


@pytest.mark.parametrize("name", MODELS)
def test_output_has_one_value_per_sample_label_or_class(name: str) -> None:
    model = small(name).eval()
    output = model(made(SHAPES.get(name, FIELDS), dtype=torch.float32))
    assert output.shape == OUTPUTS.get(name, (6,))
    assert output.dtype == torch.float32
    assert output.isfinite().all()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("numbers", [True, False])
def test_gradients_reach_every_parameter_and_every_row(name: str, numbers: bool) -> None:
    shape = SHAPES.get(name, FIELDS) if numbers else without_numbers(name)
    model = stirred(small(name, shape)).train()
    x = made(shape)
    backward(model(x).square())
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.numel() == 0 or parameter.grad.any(), parameter_name
    for feature, rows in leaves(x).items():
        assert rows.grad is not None, feature
        per_row = rows.grad.flatten(0, 1).abs().sum(1)
        if feature in shape.sequences:
            per_row = per_row[x.sequence(feature).mask.flatten()]
        assert (per_row > 0).all(), feature


@pytest.mark.parametrize("name", MODELS)
def test_eval_mode_gives_the_same_twice_and_each_sample_alone(name: str) -> None:
    model = stirred(small(name))
    shape = SHAPES.get(name, FIELDS)
    x = made(shape)
    once = array(model(x))
    np.testing.assert_array_equal(array(model(x)), once)
    for sample in range(len(x)):
        alone = type(x)(
            x.numbers[sample : sample + 1],
            {names: block[sample : sample + 1] for names, block in x._blocks.items()},
            {
                key: type(of)(of.rows[sample : sample + 1], of.mask[sample : sample + 1])
                for key, of in x._sequences.items()
            },
        )
        np.testing.assert_allclose(array(model(alone)), once[sample : sample + 1], rtol=1e-9)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("samples", [1, 2])
def test_the_last_batch_of_an_epoch_may_be_as_short_as_one_sample(name: str, samples: int) -> None:
    model = small(name).double().train()
    output = model(made(SHAPES.get(name, FIELDS), samples))
    backward(output)
    assert output.shape[0] == samples
    assert output.isfinite().all()


@pytest.mark.parametrize("name", MODELS)
def test_no_input_is_written_over(name: str) -> None:
    shape = SHAPES.get(name, FIELDS)
    x, twin = made(shape), made(shape)
    backward(small(name).double().train()(x))
    assert torch.equal(x.numbers, twin.numbers)
    for ours, theirs in zip(leaves(x).values(), leaves(twin).values(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("name", MODELS)
def test_numbers_are_no_must(name: str) -> None:
    shape = without_numbers(name)
    output = small(name, shape).eval()(made(shape, dtype=torch.float32))
    assert output.shape == OUTPUTS.get(name, (6,))


@pytest.mark.parametrize("name", MODELS)
def test_a_model_without_id_features_works_on_numbers_or_says_what_it_lacks(name: str) -> None:
    shape = InputShape(3, {}, SHAPES.get(name, FIELDS).sequences)
    if name in NEEDS_FIELDS:
        settings = {key: value for key, value in SMALL[name].items() if key != "target"}
        with pytest.raises(ConfigError, match=r"there are no id features|it must name one id feature; there are: none"):
            build(name, shape, settings)
        return
    output = small(name, shape).eval()(made(shape, dtype=torch.float32))
    assert output.shape == OUTPUTS.get(name, (6,))
    with pytest.raises(ConfigError, match="there are neither id features nor numbers"):
        small(name, InputShape(0))


@pytest.mark.parametrize("name", MODELS)
def test_sequences_are_read_or_refused(name: str) -> None:
    shape = SHAPES.get(name, FIELDS)
    more = InputShape(3, shape.fields, {**shape.sequences, "bought": 5})
    settings = SMALL[name] | ({"history": "seen"} if shape is HISTORY else {})
    settings |= {"hops": ["hop1", "hop2"]} if shape is GRAPH else {}
    with pytest.raises(ConfigError, match=f"{name} does not read the sequence 'bought': leave its `sequence` setting"):
        build(name, more, settings)


@pytest.mark.parametrize("name", ["fm", "deepfm", "xdeepfm", "wide_deep"])
def test_a_row_of_one_float_is_too_short_for_a_weight_and_a_vector(name: str) -> None:
    with pytest.raises(ConfigError, match=f"dim=1 of 'a': {name} takes the first float"):
        build(name, InputShape(0, {"a": 1, "b": 1}))
    small(name, InputShape(0, {"a": 2, "b": 2}))


@pytest.mark.parametrize("name", ["fm", "deepfm", "xdeepfm", "dlrm"])
def test_fields_of_several_sizes_cannot_be_multiplied(name: str) -> None:
    with pytest.raises(ConfigError, match="rows of one size in all its tables, there are a: 4, b: 5"):
        build(name, InputShape(2, {"a": 4, "b": 5}))


def test_dlrm_needs_two_vectors() -> None:
    with pytest.raises(ConfigError, match="a second id feature, or numbers"):
        build("dlrm", InputShape(0, {"a": 4}))
    build("dlrm", InputShape(1, {"a": 4}))
    build("dlrm", InputShape(0, {"a": 4, "b": 4}))


@pytest.mark.parametrize("name", MODELS)
def test_bfloat16_autocast_gives_about_the_same(name: str) -> None:
    shape = SHAPES.get(name, FIELDS)
    model = small(name).train()
    torch.manual_seed(1)
    exact = model(made(shape, dtype=torch.float32))
    x = made(shape, dtype=torch.float32)
    torch.manual_seed(1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = model(x).float()
    backward(rough)
    assert (exact - rough).abs().max() < 0.1 * (1 + exact.abs().max())
    assert all(rows.grad is not None and rows.grad.dtype == torch.float32 for rows in leaves(x).values())
