"""EmbeddingBag over tables with capacity, admission, expiry, 16-bit rows and segments."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch

from hotrow import SGD, AtLeast, ConfigError, Constant, Segment, Table
from hotrow.errors import InputError, SegmentError
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


def test_a_module_that_cannot_open_one_table_loses_no_rows_of_another(tmp_path: Path) -> None:
    def tables(dim: int) -> dict[str, Table]:
        segment = Segment(run="m", directory=tmp_path)
        return {"a": Table(dim=2, segment=segment), "b": Table(dim=dim, segment=segment)}

    emb = EmbeddingBag(tables=tables(2))
    emb({"a": ids(1, 2), "b": ids(3, 4)})
    for name in ("a", "b"):
        emb.table(name).close(leave=True)
    with pytest.raises(SegmentError, match="dim"):
        EmbeddingBag(tables=tables(3))
    again = EmbeddingBag(tables=tables(2))
    assert len(again) == 4
    for name in ("a", "b"):
        again.table(name).close()
    assert list(tmp_path.iterdir()) == []


def test_samples_go_on_where_a_segment_was_left(tmp_path: Path) -> None:
    def made() -> EmbeddingBag:
        return EmbeddingBag(dim=2, expiry=10, segment=Segment(run="m", directory=tmp_path))

    emb = made()
    for _ in range(3):
        learn(emb, 1, 2, 3, 4)
    emb.table().close(leave=True)
    again = made()
    assert again.samples == 8  # told by the last lookup
    for _ in range(3):
        learn(again, 5, 6, 7, 8)
    learn(again, 9)
    assert again.table().find(np.array([1], np.uint64)).absent == 1
    again.table().close()


@pytest.mark.parametrize("eviction", ["lru", "lfu", "refuse"])
@pytest.mark.parametrize("in_segment", [False, True])
def test_a_state_larger_than_the_table_is_refused_before_anything_is_lost(
    eviction: str, in_segment: bool, tmp_path: Path
) -> None:
    def made(capacity: int) -> EmbeddingBag:
        segment = Segment(run=f"m{capacity}", directory=tmp_path) if in_segment else None
        return EmbeddingBag(dim=2, capacity=capacity, eviction=eviction, segment=segment)

    large, small, enough = made(400), made(200), made(300)
    learn(large, *range(300))
    learn(small, 1, 2)
    with pytest.raises(InputError, match=r"100 of the 300 rows .* capacity=200: give it more"):
        small.load_state_dict(large.state_dict())
    assert sorted(chunk.keys.tolist() for chunk in small.table().export()) == [[1, 2]]
    enough.load_state_dict(large.state_dict())
    assert len(enough) == 300
    for each in (large, small, enough):
        each.table().close()


def test_a_state_that_fits_the_bytes_but_not_beside_the_file_of_a_segment_is_refused(tmp_path: Path) -> None:
    plain = EmbeddingBag(dim=2, capacity="24MB")
    learn(plain, *range(100_000))
    beside = EmbeddingBag(dim=2, capacity="24MB", segment=Segment(run="m", directory=tmp_path))
    learn(beside, 1, 2)
    with pytest.raises(InputError, match="find no room"):
        beside.load_state_dict(plain.state_dict())
    assert len(beside) == 2
    beside.table().close()
