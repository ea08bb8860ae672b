"""EmbeddingBag over tables with capacity, admission, expiry, 16-bit rows and segments."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch

from hotrow import SGD, AtLeast, ConfigError, Constant, Segment, Table
from hotrow.nn import EmbeddingBag


def ids(*values: int) -> torch.Tensor:
    return torch.tensor([[value] for value in values])


def learn(emb: EmbeddingBag, *values: int) -> torch.Tensor:
    out = emb(ids(*values))
    assert isinstance(out, torch.Tensor)
    torch.autograd.backward(out.sum())
    emb.step()
    return out.detach()


def test_every_setting_of_a_table_can_be_given() -> None:
    emb = EmbeddingBag(dim=4, type="bfloat16", capacity=300, eviction="lfu", expiry=1000)
    assert emb.table().table == Table(dim=4, type="bfloat16", capacity=300, eviction="lfu", expiry=1000)
    with pytest.raises(ConfigError, match="capcity"):
        EmbeddingBag(dim=4, capcity=300)
    with pytest.raises(ConfigError, match="capacity"):
        EmbeddingBag(tables={"a": Table(dim=4)}, capacity=3)


def test_ids_that_wait_for_admission_give_the_default_row_and_their_gradients_are_counted() -> None:
    emb = EmbeddingBag(dim=2, optimizer=SGD(lr=1.0), init=Constant(value=5.0), admission=AtLeast(count=2), default=0.5)
    assert (learn(emb, 1) == 0.5).all()
    assert emb.table().stats().unadmitted == 1
    assert (learn(emb, 1, 2) == torch.tensor([[5.0, 5.0], [0.5, 0.5]])).all()
    emb.eval()
    assert (emb(ids(1, 2, 3)) == torch.tensor([[4.0, 4.0], [0.5, 0.5], [0.5, 0.5]])).all()
    assert len(emb) == 1


def test_samples_are_expirys_clock() -> None:
    emb = EmbeddingBag(dim=2, optimizer=SGD(lr=1.0), init=Constant(value=0.0), expiry=3)
    learn(emb, 1)  # at sample 0
    learn(emb, 2, 3)  # at 1
    assert (learn(emb, 1) == -1).all()  # at 3: three samples unseen is not too long
    learn(emb, 4, 5, 6, 7)  # at 4
    assert (learn(emb, 1) == 0).all()  # at 8: five unseen, it starts anew


def test_looking_does_not_keep_a_row_from_being_evicted() -> None:
    emb = EmbeddingBag(dim=2, capacity=2)
    learn(emb, 1)
    learn(emb, 2)
    with torch.no_grad():
        emb(ids(1))
    learn(emb, 3)
    assert sorted(emb.table().eviction_order().tolist()) == [2, 3]


@pytest.mark.parametrize("eviction", ["lru", "lfu"])
def test_a_loaded_state_evicts_in_the_same_order(eviction: str) -> None:
    def made() -> EmbeddingBag:
        return EmbeddingBag(dim=2, capacity=600, eviction=eviction, type="float16", init=Constant(value=0.0))

    generator = np.random.default_rng(5)
    first, second = made(), made()
    for _ in range(8):
        learn(first, *generator.integers(0, 900, 300).tolist())
    second.load_state_dict(first.state_dict())
    for each in (first, second):
        after = np.random.default_rng(6)
        for _ in range(4):
            learn(each, *after.integers(0, 900, 300).tolist())
    for partition in range(first.table().partitions):
        mine, theirs = (each.table().eviction_order(partition).tolist() for each in (first, second))
        assert mine == theirs
    assert torch.equal(first(ids(*range(900))), second(ids(*range(900))))


def test_copies_and_states_of_a_module_with_a_segment(tmp_path: Path) -> None:
    emb = EmbeddingBag(dim=2, segment=Segment(run="m", directory=tmp_path))
    learn(emb, 1, 2, 3)
    twin = copy.deepcopy(emb)
    assert twin.table().table.segment is None
    state = emb.state_dict()
    learn(emb, 1, 9)
    emb.load_state_dict(state)
    assert len(emb) == 3
    assert torch.equal(emb(ids(1, 2, 3)), twin(ids(1, 2, 3)))
    assert len(list(tmp_path.iterdir())) == 1
    emb.table().close()
    assert list(tmp_path.iterdir()) == []
