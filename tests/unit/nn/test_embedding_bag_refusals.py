"""Bad input and settings of an EmbeddingBag get a sentence, and change nothing."""

from typing import Any

import pytest
import torch

import hotrow as hr
from hotrow.nn import EmbeddingBag
from oracles.bags import two_tables

IDS = torch.tensor([1, 2, 3])
REFUSED_INPUTS = {
    "no tensor": ((["1"],), "ids: ids is a list: give a torch.Tensor"),
    "floats": ((IDS.float(),), "ids: ids.dtype=torch.float32: must be int64, int32 or uint64"),
    "3-D": ((IDS.view(1, 1, 3),), r"ids: ids.shape=\(1, 1, 3\): must be 1-D with offsets, or 2-D"),
    "no offsets": ((IDS,), "offsets is missing"),
    "two ways": ((IDS.view(3, 1), IDS), "offsets given with 2-D ids"),
    "float offsets": ((IDS, torch.tensor([0.0])), r"offsets is torch.float32 \(1,\): must be a 1-D tensor of int64"),
    "late start": ((IDS, torch.tensor([1])), "the first bag starts at 1: offsets must start with 0"),
    "no bag": ((IDS, torch.empty(0, dtype=torch.int64)), "the first bag starts at 3: offsets must start with 0"),
    "falling": ((IDS, torch.tensor([0, 2, 1])), r"offsets\[1\]=2 and the bag ends at 1: must not fall"),
    "beyond": ((IDS, torch.tensor([0, 4])), r"offsets\[1\]=4 and the bag ends at 3: must not fall"),
    "weights' shape": ((IDS[None], None, torch.ones(3)), r"per_sample_weights.shape=\(3,\): must be that of the ids"),
    "weights' type": ((IDS[None], None, IDS[None]), "per_sample_weights is torch.int64: must be a tensor of floats"),
    "dict": (({"a": IDS},), "ids is a dict: this module has one table"),
}


@pytest.mark.parametrize(("inputs", "sentence"), REFUSED_INPUTS.values(), ids=REFUSED_INPUTS)
def test_refused_input_gets_a_sentence_and_changes_nothing(inputs: Any, sentence: str) -> None:
    emb = EmbeddingBag(4, mode="sum")
    with pytest.raises(hr.InputError, match=sentence):
        emb(*inputs)
    assert len(emb) == 0


REFUSED_FEATURES = {
    "tensor": (IDS, "this module has named tables: give one dict"),
    "unknown": ({"who": IDS[None], "seen": IDS[None], "bought": IDS[None], "lost": IDS}, "feature 'lost' is unknown"),
    "missing": ({"seen": IDS[None]}, "feature 'bought', 'who' is missing"),
    "parts": ({"who": (), "seen": IDS[None], "bought": IDS[None]}, "feature 'who': 0 parts"),
    "last is bad": ({"seen": IDS[None], "bought": IDS[None], "who": IDS}, "feature 'who': offsets is missing"),
}


@pytest.mark.parametrize(("inputs", "sentence"), REFUSED_FEATURES.values(), ids=REFUSED_FEATURES)
def test_a_refused_feature_names_itself_and_no_table_changes(inputs: Any, sentence: str) -> None:
    emb = two_tables()
    with pytest.raises(hr.InputError, match=sentence):
        emb(inputs)
    assert len(emb) == 0


def test_weights_with_a_mean_are_refused_as_in_torch() -> None:
    with pytest.raises(hr.InputError, match="per_sample_weights with mode='mean': they need mode='sum'"):
        EmbeddingBag(4)(IDS[None], per_sample_weights=torch.ones(1, 3))


REFUSED_SETTINGS = {
    "nothing": ({}, "dim is missing: give the floats per row"),
    "zero": ({"dim": 0}, "Table.dim=0"),
    "both": ({"dim": 4, "tables": {"a": hr.Table(dim=4)}}, "'dim' given beside tables"),
    "max": ({"dim": 4, "mode": "max"}, "mode='max': must be 'mean' or 'sum'"),
    "threads": ({"dim": 4, "threads": 0}, "threads=0: must be from 1 to 1,024"),
    "padding": ({"dim": 4, "padding_idx": 2**64}, "padding_idx=18,446,744,073,709,551,616: must be from"),
    "features": ({"dim": 4, "features": {"a": "b"}}, "features given without tables"),
    "no such table": (
        {"tables": {"a": hr.Table(dim=4)}, "features": {"x": "b"}},
        r"features\['x'\]='b': there is no such",
    ),
    "no tables": ({"tables": {}}, "tables={}: give one or more"),
    "no table": ({"tables": {"a": 4}}, r"tables\['a'\] is a int: give a hotrow.Table"),
    "two names": ({"tables": {"a": hr.Table(dim=4, name="b")}}, r"tables\['a'\].name='b': must be 'a'"),
}


@pytest.mark.parametrize(("settings", "sentence"), REFUSED_SETTINGS.values(), ids=REFUSED_SETTINGS)
def test_settings_that_cannot_be_get_a_sentence(settings: Any, sentence: str) -> None:
    with pytest.raises(hr.ConfigError, match=sentence):
        EmbeddingBag(**settings)
