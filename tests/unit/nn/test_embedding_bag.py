"""EmbeddingBag keeps torch's promises: same outputs, same gradients, same rows after training, in a plain loop."""

from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import hotrow as hr
from hotrow.nn import EmbeddingBag
from hotrow.store import Applied, RamTier
from oracles.bags import (
    LR,
    OPTIMIZERS,
    PADDING,
    VOCABULARY,
    batches,
    drawn,
    rows_of,
    torch_optimizer,
    torch_twin,
    trained,
    two_tables,
)

pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled")  # torch's optimizers
IDS = torch.tensor([1, 2, 3])


@given(data=st.data())
def test_trains_like_torch_over_random_shapes(data: st.DataObject) -> None:
    mode: Literal["mean", "sum"] = data.draw(st.sampled_from(["mean", "sum"]), "mode")
    optimizer = data.draw(st.sampled_from(sorted(OPTIMIZERS)), "optimizer")
    padded = data.draw(st.booleans(), "padded")
    weighted = mode == "sum" and data.draw(st.booleans(), "weighted")
    form = data.draw(st.sampled_from(["ragged", "matrix", "single"]), "form")
    dim = data.draw(st.integers(1, 20), "dim")
    padding_idx = int(VOCABULARY[PADDING]) if padded else None
    ours = EmbeddingBag(dim, mode=mode, optimizer=OPTIMIZERS[optimizer], padding_idx=padding_idx, threads=2)
    theirs = torch_twin(ours.table(), mode, PADDING if padded else None)
    reference = torch_optimizer(optimizer, theirs)
    for shape in data.draw(st.lists(batches(form), min_size=1, max_size=4), "batches"):
        places, offsets, weights = drawn(shape, weighted=weighted)
        got = ours(VOCABULARY[places], offsets, weights)
        expected = theirs(places, offsets, weights)
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)
        slope = torch.randn(got.shape, generator=torch.Generator().manual_seed(shape.seed))
        (got * slope).sum().backward()
        (expected * slope).sum().backward()
        ours.step()
        reference.step()
        reference.zero_grad()
    torch.testing.assert_close(rows_of(ours.table()), theirs.weight.detach(), rtol=1e-4, atol=1e-5)


@given(data=st.data())
def test_weights_get_the_gradient_torch_gives_them(data: st.DataObject) -> None:
    shape = data.draw(st.sampled_from(["ragged", "matrix"]).flatmap(lambda form: batches(form)), "shape")
    padded, training = data.draw(st.booleans(), "padded"), data.draw(st.booleans(), "training")
    ours = EmbeddingBag(6, mode="sum", padding_idx=int(VOCABULARY[PADDING]) if padded else None).train(training)
    theirs = torch_twin(ours.table(), "sum", PADDING if padded else None)
    places, offsets, weights = drawn(shape, weighted=True)
    assert weights is not None
    mine, reference = weights.clone().requires_grad_(), weights.clone().requires_grad_()
    got = ours(VOCABULARY[places], offsets, mine)
    slope = torch.randn(got.shape, generator=torch.Generator().manual_seed(1))
    (got * slope).sum().backward()
    (theirs(places, offsets, reference) * slope).sum().backward()
    assert mine.grad is not None
    torch.testing.assert_close(mine.grad, reference.grad, rtol=1e-5, atol=1e-6)
    assert len(ours) == (len(set(places.flatten().tolist()) - ({PADDING} if padded else set())) if training else 0)


def test_features_of_one_table_are_one_batch_of_it() -> None:
    ours = two_tables()
    items, users = torch_twin(ours.table("item"), "sum", None), torch_twin(ours.table("user"), "sum", None)
    steps = [torch_optimizer("sgd", items), torch_optimizer("adagrad", users)]
    who, bought = torch.tensor([[1], [2]]), torch.tensor([[2], [4]])
    seen, starts = torch.tensor([1, 1, 2]), torch.tensor([0, 2])
    factors = torch.tensor([0.5, 2.0, -1.0])
    for _ in range(3):
        got = ours({"bought": VOCABULARY[bought], "who": VOCABULARY[who], "seen": (VOCABULARY[seen], starts, factors)})
        assert list(got) == ["bought", "who", "seen"]
        expected = {"bought": items(bought), "who": users(who), "seen": items(seen, starts, factors)}
        for feature, pooled in got.items():
            torch.testing.assert_close(pooled, expected[feature])
        for outputs in (got, expected):
            torch.autograd.backward(torch.cat([part for _, part in sorted(outputs.items())], 1).square().sum())
        applied = ours.step()
        assert isinstance(applied, dict)
        assert {name: part.rows for name, part in applied.items()} == {"item": 3, "user": 2}
        for reference in steps:
            reference.step()
            reference.zero_grad()
    torch.testing.assert_close(rows_of(ours.table("item")), items.weight.detach())
    torch.testing.assert_close(rows_of(ours.table("user")), users.weight.detach())
    assert (ours.steps, ours.samples) == (3, 6)


def test_each_output_of_a_dict_may_be_written_over() -> None:
    emb = EmbeddingBag(tables={"item": hr.Table(dim=4)}, features={"a": "item", "b": "item"})
    out = emb({"a": torch.tensor([[1], [2]]), "b": torch.tensor([[3], [4]])})
    kept = out["b"].detach().clone()
    out["a"].relu_().sum().backward()
    assert torch.equal(out["b"], kept)


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_several_forwards_before_a_step_are_one_large_batch(optimizer: hr.SGD | hr.Adagrad) -> None:
    one, many = EmbeddingBag(4, optimizer=optimizer), EmbeddingBag(4, optimizer=optimizer)
    places = torch.randint(len(VOCABULARY), (6, 3), generator=torch.Generator().manual_seed(2))
    ids = VOCABULARY[places]
    one(ids).exp().sum().backward()
    for part in (ids[:1], ids[1:2], ids[2:]):
        many(part).exp().sum().backward()
    many(ids[:, :1])  # a forward without a backward is no part of the step
    assert one.step() == many.step()
    torch.testing.assert_close(rows_of(one.table()), rows_of(many.table()))
    assert one.samples == many.samples == 6


def test_one_id_per_bag_joins_bags_and_weights_in_a_step() -> None:
    emb = EmbeddingBag(2, mode="sum", optimizer=hr.SGD(lr=1.0), init=hr.Constant(value=0.0))
    emb(torch.tensor([[5], [6]])).sum().backward()
    emb(torch.tensor([[5, 5]]), per_sample_weights=torch.tensor([[0.5, 3.0]])).sum().backward()
    emb.step()
    out = np.empty((2, 2), np.float32)
    emb.table().find(np.array([5, 6]), out)
    assert out.tolist() == [[-4.5, -4.5], [-1.0, -1.0]]


def test_a_graph_kept_for_a_second_backward_adds_up() -> None:
    once, twice = EmbeddingBag(4, optimizer=hr.SGD(lr=LR)), EmbeddingBag(4, optimizer=hr.SGD(lr=2 * LR))
    loss = once(VOCABULARY[:, None]).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    twice(VOCABULARY[:, None]).sum().backward()
    assert once.step() == twice.step()
    torch.testing.assert_close(rows_of(once.table()), rows_of(twice.table()))
    assert once.samples == len(VOCABULARY)
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_step_counts_and_forgets() -> None:
    emb = trained(EmbeddingBag(4), steps=1)
    before = rows_of(emb.table())
    nothing = emb.step(samples=100)
    assert isinstance(nothing, Applied)
    assert (nothing.rows, emb.steps, emb.samples) == (0, 2, 105)
    emb(VOCABULARY[:, None]).sum().backward()
    emb.zero_grad()
    emb.step()
    assert torch.equal(rows_of(emb.table()), before)
    assert emb.table().last_updates(VOCABULARY.numpy()).max() == 1
    with pytest.raises(hr.InputError, match="samples=-1"):
        emb.step(samples=-1)
    assert emb.steps == 3


def test_rows_hear_the_number_of_the_step_and_the_samples_so_far() -> None:
    forgetful = hr.Adagrad(lr=LR, swap=hr.Swap(period=4, decay=0.5))  # its rows depend on the samples
    emb, tier = EmbeddingBag(3, optimizer=forgetful), RamTier(hr.Table(dim=3, optimizer=forgetful))
    for step in range(4):
        emb(IDS[:, None]).sum().backward()
        emb.step()
        batch = tier.find_or_init(IDS)
        tier.apply(batch, np.ones((3, 3), np.float32), step=step, samples=3 * (step + 1))
    assert emb.table().last_updates(IDS).tolist() == [4, 4, 4]
    expected = np.empty((3, 3), np.float32)
    tier.find(IDS, expected)
    assert np.array_equal(emb.eval()(IDS[:, None]).numpy(), expected)


def test_weights_written_over_before_backward_are_noticed_as_in_torch() -> None:
    emb, weights = EmbeddingBag(4, mode="sum"), torch.ones(1, 3, requires_grad=True)
    scaled = weights * 2
    out = emb(IDS[None], per_sample_weights=scaled)
    with torch.no_grad():
        scaled.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_a_row_with_a_gradient_that_is_not_finite_stays_as_it_is() -> None:
    emb = EmbeddingBag(4)
    out = emb(torch.tensor([[1], [2]]))
    before = out.detach().clone()
    (out * torch.tensor([[1.0], [float("inf")]])).sum().backward()
    applied = emb.step()
    assert isinstance(applied, Applied)
    assert (applied.rows, applied.refused) == (1, 1)
    assert torch.equal(emb.eval()(torch.tensor([[2]])), before[1:])


@pytest.mark.parametrize(
    "ids", [torch.tensor([[1], [9]]), torch.tensor([[1, 1, 9], [9, 9, 1]])], ids=["single", "bags"]
)
@pytest.mark.parametrize("how", ["eval", "no_grad"])
def test_looking_without_learning_makes_no_rows(how: str, ids: Tensor) -> None:
    emb = EmbeddingBag(4)
    emb(torch.tensor([[1]])).sum().backward()
    emb.step()
    emb.train(how == "no_grad")
    with torch.set_grad_enabled(how == "eval"):
        seen = emb(ids)
    assert (len(emb), emb.absent_ids, seen.requires_grad) == (1, 1, False)
    emb.train()
    torch.testing.assert_close(emb(ids).detach(), seen, rtol=0, atol=0)
    assert len(emb) == 2


@pytest.mark.parametrize(
    "change", [lambda ids: ids.int(), lambda ids: ids.view(torch.uint64), lambda ids: ids.t().contiguous().t()]
)
def test_ids_of_other_types_and_layouts_mean_the_same(change: Callable[[Tensor], Tensor]) -> None:
    ids = torch.tensor([[1, -2, 3], [-2, -2, 70_000]])
    assert torch.equal(EmbeddingBag(4)(change(ids)), EmbeddingBag(4)(ids))


def test_last_offset_may_be_included() -> None:
    ids, starts = torch.tensor([4, 5, 6]), torch.tensor([0, 1, 1])
    closed = EmbeddingBag(4, include_last_offset=True)
    assert torch.equal(closed(ids, torch.tensor([0, 1, 1, 3])), EmbeddingBag(4)(ids, starts))
    with pytest.raises(hr.InputError, match="the last offset is 1: include_last_offset makes it the number of ids, 3"):
        closed(ids, starts)


def test_no_ids_at_all_are_empty_bags() -> None:
    emb = EmbeddingBag(4)
    none = torch.empty(0, dtype=torch.int64)
    assert torch.equal(emb(none, torch.tensor([0, 0])), torch.zeros(2, 4))
    assert emb(none, none).shape == (0, 4)
    assert torch.equal(emb(torch.empty(3, 0, dtype=torch.int64)), torch.zeros(3, 4))
    emb(none, torch.tensor([0])).sum().backward()
    emb.step()
    assert len(emb) == 0


@pytest.mark.gpu
def test_outputs_go_where_the_ids_are() -> None:
    emb, ids = EmbeddingBag(4), torch.tensor([[1, 2], [2, 3]])
    out = emb(ids.cuda())
    assert out.is_cuda
    torch.testing.assert_close(out.cpu(), EmbeddingBag(4)(ids))
    out.sum().backward()
    applied = emb.step()
    assert isinstance(applied, Applied)
    assert applied.rows == 3


def test_tables_start_the_same_id_differently() -> None:
    emb = EmbeddingBag(tables={"a": hr.Table(dim=4), "b": hr.Table(dim=4)})
    out = emb({"a": IDS[:, None], "b": IDS[:, None]})
    assert not torch.equal(out["a"], out["b"])


def test_padding_is_any_id_and_never_gets_a_row() -> None:
    emb = EmbeddingBag(4, padding_idx=2**64 - 1)  # the bits of -1
    assert torch.equal(emb(torch.tensor([[7, -1], [-1, -1]]))[1], torch.zeros(4))
    assert len(emb) == 1


def test_gradients_and_weights_count_as_they_were_at_backward() -> None:
    ids = torch.tensor([[1, 2]])
    weights = torch.nn.Parameter(torch.tensor([[1.0, 1.0]]))
    emb = hr.nn.EmbeddingBag(dim=2, optimizer=hr.SGD(lr=1.0), init=hr.Constant(value=0.0), mode="sum", threads=1)
    gradient = torch.ones(1, 2)
    emb(ids, per_sample_weights=weights).backward(gradient)
    with torch.no_grad():  # as a dense optimizer's step before emb.step()
        weights.fill_(100.0)
        gradient.zero_()
    emb.step()
    emb.eval()
    assert emb(ids, per_sample_weights=torch.ones(1, 2)).tolist() == [[-2.0, -2.0]]


def test_torch_defaults_do_not_leak_in() -> None:
    emb = hr.nn.EmbeddingBag(dim=3, threads=1)
    torch.set_default_dtype(torch.float64)
    try:
        out = emb(torch.tensor([[1, 2], [3, 4]]))
        out.sum().backward()
        emb.step()
    finally:
        torch.set_default_dtype(torch.float32)
    assert out.dtype == torch.float32


def test_a_cache_is_refused_because_the_rows_are_in_the_module_itself() -> None:
    with pytest.raises(
        hr.ConfigError, match=r"table 'default': cache=.* has its rows in its own process: leave cache out"
    ):
        EmbeddingBag(dim=4, cache=hr.Cache(capacity=10))
