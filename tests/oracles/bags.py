"""torch's EmbeddingBag beside ours: a small vocabulary, batches of random shapes, and the rows of both in one order."""

from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor, nn

import hotrow as hr
from hotrow.nn import EmbeddingBag
from hotrow.store import RamTier

LR = 0.1
OPTIMIZERS: dict[str, hr.SGD | hr.Adagrad] = {"sgd": hr.SGD(lr=LR), "adagrad": hr.Adagrad(lr=LR)}
VOCABULARY = torch.tensor([0, 1, -1, 7, 2**62, -(2**63), 123_456_789, 42])  # any 64 bits are an id
PADDING = 3  # its place in the vocabulary


@dataclass
class Shape:
    """One batch: which form it is given in and how many ids its bags have."""

    form: str
    lengths: list[int]
    seed: int


def batches(form: str) -> st.SearchStrategy[Shape]:
    """Ragged bags (empty ones too), a matrix, or one id per bag."""
    lengths = {
        "ragged": st.lists(st.integers(0, 4), min_size=1, max_size=6),
        "matrix": st.tuples(st.integers(1, 6), st.integers(1, 4)).map(lambda shape: [shape[1]] * shape[0]),
        "single": st.integers(1, 8).map(lambda bags: [1] * bags),
    }
    return st.builds(Shape, st.just(form), lengths[form], st.integers(0, 2**32))


def drawn(shape: Shape, *, weighted: bool) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Places in the vocabulary, offsets and weights as torch's module takes them."""
    rng = np.random.default_rng(shape.seed)
    places = torch.from_numpy(rng.integers(0, len(VOCABULARY), sum(shape.lengths)))
    weights = torch.from_numpy(rng.normal(size=len(places)).astype(np.float32)) if weighted else None
    if shape.form == "matrix":
        size = (len(shape.lengths), -1)
        return places.view(size), None, None if weights is None else weights.view(size)
    return places, torch.tensor([0, *np.cumsum(shape.lengths)[:-1]]), weights


def torch_twin(ours: RamTier, mode: str, padding_idx: int | None) -> nn.EmbeddingBag:
    """torch's module with one row per place in the vocabulary, starting where ours starts."""
    first = torch.empty(len(VOCABULARY), ours.dim)
    ours.first_values(VOCABULARY.numpy(), first.numpy())
    return nn.EmbeddingBag(len(VOCABULARY), ours.dim, mode=mode, sparse=True, padding_idx=padding_idx, _weight=first)


def torch_optimizer(name: str, module: nn.Module) -> torch.optim.Optimizer:
    """torch's optimizer for the rows of its module."""
    kind = torch.optim.SGD if name == "sgd" else torch.optim.Adagrad
    return kind(module.parameters(), lr=LR)


def rows_of(tier: RamTier) -> Tensor:
    """Row for row what torch's weight should be; rows never met keep their first value."""
    rows = torch.empty(len(VOCABULARY), tier.dim)
    tier.first_values(VOCABULARY.numpy(), rows.numpy())
    found = torch.empty_like(rows)
    present = ~tier.find(VOCABULARY.numpy(), found.numpy()).absent_mask()
    rows[present] = found[present]
    return rows


def trained(emb: EmbeddingBag, steps: int = 3, seed: int = 0) -> EmbeddingBag:
    """The module after a few steps over the vocabulary."""
    rng = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        places = torch.randint(len(VOCABULARY), (5, 3), generator=rng)
        emb(VOCABULARY[places]).square().sum().backward()
        emb.step()
    return emb


def two_tables() -> EmbeddingBag:
    """Three features over two tables of different kinds."""
    return EmbeddingBag(
        tables={"item": hr.Table(dim=4, optimizer=hr.SGD(lr=LR)), "user": hr.Table(dim=2, optimizer=hr.Adagrad(lr=LR))},
        features={"who": "user", "seen": "item", "bought": "item"},
        mode="sum",
    )
