"""The rows of an EmbeddingBag travel with state_dict, deepcopy and pickle, and only into a module of their kind."""

import copy
import io
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import hotrow as hr
from hotrow.nn import EmbeddingBag
from oracles.bags import LR, VOCABULARY, rows_of, trained

MODULES = {
    "adagrad": lambda: EmbeddingBag(4),
    "sgd": lambda: EmbeddingBag(4, optimizer=hr.SGD(lr=LR)),
    "adam": lambda: EmbeddingBag(4, optimizer=hr.Adam(lr=LR)),
    "swap": lambda: EmbeddingBag(4, optimizer=hr.Adagrad(lr=LR, swap=hr.Swap(period=7, decay=0.5))),
}


def through_a_file(module: nn.Module) -> Any:
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("make", MODULES.values(), ids=MODULES)
def test_a_loaded_module_goes_on_bit_for_bit(make: Any) -> None:
    saved, loaded = trained(make()), trained(make(), seed=9)
    loaded.load_state_dict(through_a_file(saved))
    assert (loaded.steps, loaded.samples, len(loaded)) == (saved.steps, saved.samples, len(saved))
    for emb in (saved, loaded):
        trained(emb, seed=1)
    assert torch.equal(rows_of(saved.table()), rows_of(loaded.table()))
    versions, loaded_versions = (emb.table().versions(VOCABULARY.numpy()) for emb in (saved, loaded))
    assert np.array_equal(versions, loaded_versions)


def test_a_module_inside_a_model_is_saved_with_it() -> None:
    model = nn.Sequential(trained(EmbeddingBag(4)), nn.Linear(4, 1))
    other = nn.Sequential(EmbeddingBag(4), nn.Linear(4, 1))
    other.load_state_dict(through_a_file(model))
    assert torch.equal(model.eval()(VOCABULARY[:, None]), other.eval()(VOCABULARY[:, None]))


def test_an_empty_module_is_saved_too() -> None:
    emb = trained(EmbeddingBag(4))
    emb.load_state_dict(through_a_file(EmbeddingBag(4)))
    assert (len(emb), emb.steps) == (0, 0)


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda emb: pickle.loads(pickle.dumps(emb))], ids=["deepcopy", "pickle"]
)
def test_a_copy_has_rows_of_its_own(copied: Any) -> None:
    emb = trained(EmbeddingBag(4, optimizer=hr.Adam()))
    emb(VOCABULARY[:, None]).sum().backward()  # left behind, as torch's copies leave .grad behind
    twin = copied(emb)
    emb.zero_grad()
    assert torch.equal(rows_of(emb.table()), rows_of(twin.table()))
    trained(twin, seed=1)
    assert not torch.equal(rows_of(emb.table()), rows_of(twin.table()))
    trained(emb, seed=1)
    assert torch.equal(rows_of(emb.table()), rows_of(twin.table()))


REFUSED_STATES: dict[str, tuple[dict[str, Any], str]] = {
    "dim": ({"dim": 8}, "dim is 8 in the state and 4 in this module"),
    "optimizer": ({"dim": 4, "optimizer": hr.SGD()}, "optimizer.name is 'sgd' in the state and 'adagrad'"),
    "eps": ({"dim": 4, "optimizer": hr.Adagrad(eps=1.0)}, "optimizer.eps is 1.0 in the state"),
    "seed": ({"dim": 4, "seed": 3}, "seed is 3 in the state and 0 in this module"),
    "tables": ({"tables": {"user": hr.Table(dim=4)}}, "the state has tables 'user' and this module 'default'"),
}


@pytest.mark.parametrize(("other", "sentence"), REFUSED_STATES.values(), ids=REFUSED_STATES)
def test_the_state_of_another_kind_of_table_is_refused_and_changes_nothing(other: Any, sentence: str) -> None:
    emb = trained(EmbeddingBag(4))
    tier, before = emb.table(), rows_of(emb.table())
    with pytest.raises(hr.InputError, match=sentence):
        emb.load_state_dict(EmbeddingBag(**other).state_dict())
    assert emb.table() is tier
    assert torch.equal(rows_of(tier), before)


def test_a_state_that_was_cut_is_refused_and_changes_nothing() -> None:
    emb = trained(EmbeddingBag(4))
    state = emb.get_extra_state()
    del state["tables"]["default"]["values"]
    with pytest.raises(hr.InputError, match="table 'default': the state has no values"):
        emb.set_extra_state(state)
    assert len(emb) == len(VOCABULARY)


def test_a_new_learning_rate_may_take_over_old_rows() -> None:
    slower = EmbeddingBag(4, optimizer=hr.Adagrad(lr=0.001, clip=1.0))
    slower.load_state_dict(trained(EmbeddingBag(4, optimizer=hr.Adagrad(lr=LR))).state_dict())
    assert len(slower) == len(VOCABULARY)
